CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT user_id, ms, count(*) FROM clicks GROUP BY user_id;
SELECT *, count(*) FROM clicks;
SELECT geo.city, count(*) FROM clicks GROUP BY user_id;
