CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE out WITH (connector = 'single_file', path = 'o.json')
  AS SELECT user_id, make_interval(1, ms) AS age FROM clicks;
CREATE TABLE nowhere WITH (connector = 'blackhole') AS SELECT make_interval(1, ms) AS age FROM clicks;
SELECT user_id, ts - TIMESTAMP '2024-01-01 00:00:00' AS since, make_interval(1, ms) AS age FROM clicks;
