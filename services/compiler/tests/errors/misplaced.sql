CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT user_id FROM clicks WHERE count(*) > 1;
SELECT user_id FROM clicks WHERE tumble(INTERVAL '1 minute') IS NULL;
SELECT user_id FROM clicks WHERE row_number() OVER (ORDER BY ms) = 1;
SELECT row_number() FROM clicks;
