CREATE TABLE clicks (
  user_id TEXT NOT NULL,
  url TEXT,
  ms INT,
  ts TIMESTAMP NOT NULL,
  tags TEXT[],
  geo STRUCT<country TEXT, city TEXT, point STRUCT<lat DOUBLE, lon DOUBLE>>,
  attributes MAP<TEXT, TEXT>,
  payload JSON
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');

SELECT t.a, b FROM clicks AS t(a, b);
