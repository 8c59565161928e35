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

CREATE TABLE out (a TEXT, b JSON, c JSON) WITH (connector = 'blackhole');
INSERT INTO out SELECT payload->'a'->'b'->>'c', payload->'a'->0, payload FROM clicks
WHERE upper(payload->>'kind') = 'X' AND length(payload -> 'x' ->> 'y') > 1 AND (payload->'n')::INT > 3;
