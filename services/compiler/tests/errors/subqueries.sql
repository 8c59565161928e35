CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT ms FROM clicks WHERE ms = (SELECT ms FROM clicks);
SELECT ms FROM clicks WHERE ms IN (SELECT ms, user_id FROM clicks);
SELECT ms FROM clicks WHERE ms > 1 OR ms IN (SELECT ms FROM clicks);
SELECT max(ms) FROM clicks HAVING max(ms) > (SELECT avg(ms) FROM clicks);
SELECT ms FROM clicks c WHERE EXISTS (SELECT 1 FROM clicks d WHERE d.nope = c.ms);
