CREATE TABLE clicks (
  user_id TEXT NOT NULL, url TEXT, cost BIGINT, ts TIMESTAMP NOT NULL,
  WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'clicks.json', idle_time = '10 seconds');
CREATE TABLE counts (user_id TEXT, starts TIMESTAMP, clicks BIGINT, share DOUBLE)
WITH (connector = 'single_file', type = 'sink', path = 'counts.json');

INSERT INTO counts
SELECT user_id, window.start, clicks, share FROM (
  SELECT user_id, tumble(INTERVAL '1 minute') AS window, count(*) AS clicks,
    avg(cost) / (sum(cost) FILTER (WHERE url IS NOT NULL) + 1) AS share
  FROM clicks WHERE cost > 0 GROUP BY user_id, window HAVING count(*) > 1
);
