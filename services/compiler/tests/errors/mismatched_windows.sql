CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
SELECT tumble(INTERVAL '1 second') AS w, max(n) FROM (
  SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM clicks GROUP BY 1
) GROUP BY 1;
