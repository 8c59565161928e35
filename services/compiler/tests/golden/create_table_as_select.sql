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

CREATE TABLE fast AS SELECT user_id, ms FROM clicks WHERE ms < 10;
CREATE TABLE out WITH (connector = 'blackhole') AS SELECT user_id AS who, ms + 1 AS more FROM fast;
