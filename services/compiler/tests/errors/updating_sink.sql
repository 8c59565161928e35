CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE out (user_id TEXT, n BIGINT) WITH (connector = 'single_file', type = 'sink', path = 'o.json');
INSERT INTO out SELECT user_id, count(*) FROM clicks GROUP BY user_id;
