CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT tumble(60), count(*) FROM clicks GROUP BY 1;
SELECT hop(INTERVAL '1 minute'), count(*) FROM clicks GROUP BY 1;
SELECT tumble(INTERVAL '1 month'), count(*) FROM clicks GROUP BY 1;
SELECT session(INTERVAL '0 seconds'), count(*) FROM clicks GROUP BY 1;
SELECT user_id FROM session(clicks, INTERVAL '1 minute');
SELECT user_id FROM tumble(INTERVAL '1 minute');
