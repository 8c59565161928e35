CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT tumble(INTERVAL '1 minute') FROM clicks;
SELECT tumble(INTERVAL '1 minute'), count(*) FROM clicks GROUP BY user_id;
