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

CREATE TABLE out (who TEXT, ms BIGINT, at TIMESTAMPTZ, day DATE, label TEXT NOT NULL)
WITH (connector = 'blackhole');

INSERT INTO out SELECT user_id, ms, ts, ts, ms FROM clicks;
