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

CREATE TABLE impulse WITH (connector = 'impulse');
SELECT user_id AS k, ms AS v FROM clicks
UNION ALL
SELECT 'impulse', counter FROM impulse
UNION ALL
SELECT url, 1.5 FROM clicks;
