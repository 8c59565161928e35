CREATE TABLE clicks (
  user_id TEXT NOT NULL,
  url TEXT,
  ms INT,
  ts TIMESTAMP NOT NULL,
  tags TEXT[],
  geo STRUCT<country TEXT, city TEXT, point STRUCT<lat DOUBLE, lon DOUBLE>>,
  attributes MAP<TEXT, TEXT>,
  payload JSON
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');

SELECT
  ts + INTERVAL '5 seconds' AS later,
  ts - INTERVAL '1 day 2 hours' AS earlier,
  ts + INTERVAL '1' MONTH AS next_month,
  ts + INTERVAL '1 month 3 days' AS mixed,
  INTERVAL '1.5 hours' AS i,
  '90 min'::interval AS j,
  extract(epoch FROM ts) AS epoch,
  extract(dow FROM ts) AS dow,
  EXTRACT(year FROM ts) AS y,
  extract(milliseconds FROM ts) AS millis,
  date_part('hour', ts) AS h,
  date_trunc('minute', ts) AS m,
  date_bin(INTERVAL '15 minutes', ts) AS q,
  date_bin(INTERVAL '15 minutes', ts, TIMESTAMP '2001-01-01 00:05:00') AS q2,
  to_char(ts, 'YYYY-MM-DD HH24:MI:SS') AS shown,
  to_timestamp(url, 'YYYY-MM-DD') AS parsed,
  now() AS n,
  current_timestamp AS c,
  DATE '2020-01-01' AS d,
  TIME '10:00:00' AS t,
  convert_timezone('UTC', 'Europe/Berlin', ts) AS berlin,
  ts > TIMESTAMP '2020-01-01 00:00:00' AS after
FROM clicks;
