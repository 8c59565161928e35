CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT tumble(INTERVAL '1 minute'), tumble(INTERVAL '2 minutes'), count(*) FROM clicks GROUP BY 1, 2;
