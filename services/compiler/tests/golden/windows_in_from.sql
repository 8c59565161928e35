CREATE TABLE clicks (user_id TEXT, cost BIGINT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
WITH (connector = 'single_file', path = 'clicks.json');

SELECT window_start, window_end, sum(cost) AS cost FROM tumble(clicks, INTERVAL '1 minute')
GROUP BY window_start, window_end;
SELECT user_id, window_end, max(cost) FROM hop(clicks, INTERVAL '10 seconds', INTERVAL '25 seconds') AS h
GROUP BY h.user_id, h.window_end;
