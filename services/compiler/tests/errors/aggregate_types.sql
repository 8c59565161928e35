CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT avg(geo) FROM clicks;
SELECT count(nope) FROM clicks;
SELECT user_id, percentile(ms) FROM clicks GROUP BY user_id;
