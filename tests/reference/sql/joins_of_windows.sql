-- Joins of windows: the rows of both sides meet when their window is complete.

--- join_tumble_inner
SELECT e.user, e.w AS w, e.n AS n, r.total AS total FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT e.user, span(e.b, INTERVAL '1 minute'), n, total FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_left
SELECT e.user AS user, e.w.start AS began, e.n, r.n AS refunds FROM
  (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT JOIN (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT e.user, e.b, e.n, r.n FROM
  (SELECT user, bucket(INTERVAL '30 seconds', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT JOIN (SELECT user, bucket(INTERVAL '30 seconds', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_right
SELECT r.user AS user, r.w.end AS ended, e.n AS n, r.n AS refunds FROM
  (SELECT user, tumble(INTERVAL '20 seconds') AS w, count(*) AS n FROM events WHERE ok GROUP BY 1, 2) e
  RIGHT JOIN (SELECT user, tumble(INTERVAL '20 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT r.user, r.b + INTERVAL '20 seconds', e.n, r.n FROM
  (SELECT user, bucket(INTERVAL '20 seconds', ts) AS b, count(*) AS n FROM events WHERE ok GROUP BY 1, 2) e
  RIGHT JOIN (SELECT user, bucket(INTERVAL '20 seconds', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_full
SELECT e.user AS user, r.user AS other, e.n AS n, r.total AS total FROM
  (SELECT user, tumble(INTERVAL '20 seconds') AS w, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY 1, 2) e
  FULL JOIN (SELECT user, tumble(INTERVAL '20 seconds') AS w, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT e.user, r.user, e.n, r.total FROM
  (SELECT user, bucket(INTERVAL '20 seconds', ts) AS b, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY 1, 2) e
  FULL JOIN (SELECT user, bucket(INTERVAL '20 seconds', ts) AS b, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_semi
SELECT e.user, e.n FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT SEMI JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT e.user, e.n FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  SEMI JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_anti
SELECT e.user, e.n FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT ANTI JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
SELECT e.user, e.n FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  ANTI JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_tumble_by_window_alone
SELECT e.w AS w, e.n AS n, r.n AS refunds FROM
  (SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1) e
  JOIN (SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1) r ON e.w = r.w
--- duckdb
SELECT span(e.b, INTERVAL '1 minute'), e.n, r.n FROM
  (SELECT bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1) e
  JOIN (SELECT bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM refunds GROUP BY 1) r ON e.b = r.b

--- join_tumble_with_condition
SELECT e.user, e.n, r.n AS refunds FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w AND e.n > 3 * r.n
WHERE e.n > 2
--- duckdb
SELECT e.user, e.n, r.n FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b AND e.n > 3 * r.n
WHERE e.n > 2

--- join_hop_inner
SELECT e.user, e.w AS w, e.n, r.total FROM
  (SELECT user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w
--- duckdb
WITH refunded AS (
  SELECT *, bucket(INTERVAL '20 seconds', ts) - k * INTERVAL '20 seconds' AS window_start FROM refunds, range(3) AS r(k)
  WHERE bucket(INTERVAL '20 seconds', ts) - k * INTERVAL '20 seconds' + INTERVAL '1 minute' > ts)
SELECT e.user, span(e.b, INTERVAL '1 minute'), n, total FROM
  (SELECT user, window_start AS b, count(*) AS n FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY 1, 2) e
  JOIN (SELECT user, window_start AS b, sum(amount) AS total FROM refunded GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b

--- join_hop_left
SELECT e.kind AS kind, e.n AS n, f.n AS fine FROM
  (SELECT kind, hop(INTERVAL '15 seconds', INTERVAL '40 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  LEFT JOIN (SELECT kind, hop(INTERVAL '15 seconds', INTERVAL '40 seconds') AS w, count(*) AS n FROM events WHERE amount > 130 GROUP BY 1, 2) f
  ON e.kind = f.kind AND e.w = f.w
--- duckdb
SELECT e.kind, e.n, f.n FROM
  (SELECT kind, window_start AS b, count(*) AS n FROM hopped(INTERVAL '15 seconds', INTERVAL '40 seconds') GROUP BY 1, 2) e
  LEFT JOIN (SELECT kind, window_start AS b, count(*) AS n FROM hopped(INTERVAL '15 seconds', INTERVAL '40 seconds') WHERE amount > 130 GROUP BY 1, 2) f
  ON e.kind = f.kind AND e.b = f.b

--- join_session_inner
SELECT a.user, a.n AS n, b.most AS most FROM
  (SELECT user, session(INTERVAL '20 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) a
  JOIN (SELECT user, session(INTERVAL '20 seconds') AS w, max(amount) AS most FROM events GROUP BY 1, 2) b
  ON a.user = b.user AND a.w = b.w
--- duckdb
SELECT user, count(*), max(amount) FROM sessions(INTERVAL '20 seconds') WHERE user IS NOT NULL GROUP BY user, session

--- join_three_windows
SELECT e.user, e.n AS n, r.n AS refunds, b.n AS buys FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r ON e.user = r.user AND e.w = r.w
  LEFT JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY 1, 2) b
  ON r.user = b.user AND r.w = b.w
--- duckdb
SELECT e.user, e.n, r.n, b.n FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r ON e.user = r.user AND e.w = r.w
  LEFT JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS w, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY 1, 2) b
  ON r.user = b.user AND r.w = b.w

--- join_windows_then_windows
SELECT w, sum(n) AS n, count(*) AS users FROM (
  SELECT e.user AS user, e.w AS w, e.n + r.n AS n FROM
    (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
    JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
    ON e.user = r.user AND e.w = r.w
) GROUP BY w
--- duckdb
SELECT span(e.b, INTERVAL '1 minute'), sum(e.n + r.n), count(*) FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b
GROUP BY e.b

--- join_windows_wider_after
SELECT user, tumble(INTERVAL '5 minutes') AS w, sum(n) AS n FROM (
  SELECT e.user AS user, e.n * r.n AS n FROM
    (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
    JOIN (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
    ON e.user = r.user AND e.w = r.w
) GROUP BY 1, 2
--- duckdb
SELECT e.user, span(bucket(INTERVAL '5 minutes', e.b), INTERVAL '5 minutes'), sum(e.n * r.n) FROM
  (SELECT user, bucket(INTERVAL '30 seconds', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, bucket(INTERVAL '30 seconds', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b
GROUP BY 1, 2

--- join_window_tables
SELECT e.id AS id, r.id AS refund, e.window_start AS began FROM tumble(events, INTERVAL '10 seconds') e
JOIN tumble(refunds, INTERVAL '10 seconds') r ON e.user = r.user AND e.window_start = r.window_start
--- duckdb
SELECT e.id, r.id, bucket(INTERVAL '10 seconds', e.ts) FROM events e
JOIN refunds r ON e.user = r.user AND bucket(INTERVAL '10 seconds', e.ts) = bucket(INTERVAL '10 seconds', r.ts)

--- join_window_max_back
SELECT e.id AS id, e.amount AS amount, m.w AS w FROM
  (SELECT tumble(INTERVAL '1 minute') AS w, max(amount) AS most FROM events GROUP BY 1) m
  JOIN (SELECT * FROM tumble(events, INTERVAL '1 minute')) e ON m.w.start = e.window_start AND m.most = e.amount
--- duckdb
SELECT e.id, e.amount, span(m.b, INTERVAL '1 minute') FROM
  (SELECT bucket(INTERVAL '1 minute', ts) AS b, max(amount) AS most FROM events GROUP BY 1) m
  JOIN events e ON m.b = bucket(INTERVAL '1 minute', e.ts) AND m.most = e.amount

--- join_windows_using
SELECT user, w, n, total FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  FULL JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  USING (user, w)
--- duckdb
SELECT user, span(b, INTERVAL '1 minute'), n, total FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  FULL JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, sum(amount) AS total FROM refunds GROUP BY 1, 2) r
  USING (user, b)

--- join_windows_top_n
SELECT user, n, place FROM (
  SELECT e.user AS user, e.n AS n, ROW_NUMBER() OVER (PARTITION BY e.w ORDER BY e.n DESC, e.user) AS place FROM
    (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
    JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
    ON e.user = r.user AND e.w = r.w
) WHERE place <= 2
--- duckdb
SELECT user, n, place FROM (
  SELECT e.user AS user, e.n AS n, ROW_NUMBER() OVER (PARTITION BY e.b ORDER BY e.n DESC, e.user) AS place FROM
    (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
    JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
    ON e.user = r.user AND e.b = r.b
) WHERE place <= 2

--- join_windows_count_only
SELECT count(*) AS n, e.w AS w FROM
  (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.w = r.w GROUP BY e.w
--- duckdb
SELECT count(*), span(e.b, INTERVAL '1 minute') FROM
  (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM events GROUP BY 1, 2) e
  JOIN (SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n FROM refunds GROUP BY 1, 2) r
  ON e.user = r.user AND e.b = r.b GROUP BY e.b

--- join_of_groups_with_the_highest_of_them
SELECT m.w AS w, a.user AS user, a.n AS n, a.total AS total FROM (
  SELECT w, max(n) AS most FROM (
    SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY user, w
  ) AS counts GROUP BY w
) AS m JOIN (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM events GROUP BY user, w
) AS a ON a.w = m.w AND a.n >= m.most
--- duckdb
SELECT span(b, INTERVAL '1 minute'), user, n, total FROM (
  SELECT user, bucket(INTERVAL '1 minute', ts) AS b, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1, 2
) QUALIFY n = max(n) OVER (PARTITION BY b)

--- join_of_groups_with_some_columns_of_themselves
SELECT a.w.start AS began, a.user AS user, a.n AS n, b.total AS total FROM (
  SELECT user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w, count(*) AS n FROM events WHERE ok GROUP BY 1, 2
) AS a LEFT JOIN (
  SELECT sum(amount) AS total, count(*) AS n, user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w
  FROM events WHERE ok GROUP BY user, w
) AS b ON a.user = b.user AND a.w = b.w
--- duckdb
SELECT window_start, user, count(*), if(user IS NULL, NULL, sum(amount))
FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') WHERE ok GROUP BY 1, 2
