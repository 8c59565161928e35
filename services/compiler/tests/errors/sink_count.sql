CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE out (a TEXT, n INT) WITH (connector = 'blackhole');
INSERT INTO out SELECT user_id FROM clicks;
