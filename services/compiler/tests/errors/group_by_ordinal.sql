CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT user_id, count(*) FROM clicks GROUP BY 3;
SELECT count(*), user_id FROM clicks GROUP BY 1;
