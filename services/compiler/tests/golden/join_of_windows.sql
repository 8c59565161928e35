CREATE TABLE clicks (
  user_id BIGINT NOT NULL, url TEXT, cost BIGINT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');

SELECT a.user_id, a.n, b.most FROM
  (SELECT user_id, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM clicks GROUP BY 1, 2) a
  LEFT JOIN (SELECT user_id, tumble(INTERVAL '1 minute') AS w, max(cost) AS most FROM clicks WHERE cost > 5 GROUP BY 1, 2) b
  ON a.user_id = b.user_id AND a.w = b.w;
