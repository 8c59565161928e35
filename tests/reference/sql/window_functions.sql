-- OVER windowed results: all rows of a window are there when it is asked.

--- row_number
SELECT user, w, n, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC, user) AS place
FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT user, span(s, INTERVAL '1 minute'), n, ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC, user)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)

--- ranks
SELECT user, w, n, RANK() OVER (PARTITION BY w ORDER BY n DESC) AS place, DENSE_RANK() OVER (PARTITION BY w ORDER BY n DESC) AS dense
FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT user, span(s, INTERVAL '1 minute'), n, RANK() OVER (PARTITION BY s ORDER BY n DESC), DENSE_RANK() OVER (PARTITION BY s ORDER BY n DESC)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)

--- lag_and_lead
SELECT user, w.start AS began, total, LAG(total) OVER (PARTITION BY w ORDER BY user, total) AS before,
       LEAD(total, 2, -1) OVER (PARTITION BY w ORDER BY user, total) AS after
FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, sum(amount) AS total FROM events GROUP BY 1, 2)
--- duckdb
SELECT user, s, total, LAG(total) OVER (PARTITION BY s ORDER BY user, total), LEAD(total, 2, -1) OVER (PARTITION BY s ORDER BY user, total)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, sum(amount) AS total FROM events GROUP BY 1, 2)

--- running_sums
SELECT user, w, n, SUM(n) OVER (PARTITION BY w ORDER BY user) AS so_far, SUM(n) OVER (PARTITION BY w) AS altogether,
       AVG(n) OVER (PARTITION BY w ORDER BY user ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS around
FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT user, span(s, INTERVAL '1 minute'), n, SUM(n) OVER (PARTITION BY s ORDER BY user), SUM(n) OVER (PARTITION BY s),
       AVG(n) OVER (PARTITION BY s ORDER BY user ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)

--- top_of_a_window
SELECT user, w, n FROM (
  SELECT user, w, n, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC, user) AS place
  FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2))
WHERE place <= 3
--- duckdb
SELECT user, span(s, INTERVAL '1 minute'), n
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)
QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC, user) <= 3

--- top_of_a_hop
SELECT * FROM (
  SELECT kind, w, total, ROW_NUMBER() OVER (PARTITION BY w ORDER BY total DESC, kind) AS place
  FROM (SELECT kind, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w, sum(price) AS total FROM events GROUP BY 1, 2))
WHERE place = 1
--- duckdb
SELECT kind, span(window_start, INTERVAL '1 minute'), total, 1
FROM (SELECT kind, window_start, sum(price) AS total FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY 1, 2)
QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY total DESC, kind) = 1

--- top_of_each_kind_in_a_window
SELECT kind, user, w.start AS began, n, place FROM (
  SELECT kind, user, w, n, ROW_NUMBER() OVER (PARTITION BY w, kind ORDER BY n DESC, user NULLS FIRST) AS place
  FROM (SELECT kind, user, tumble(INTERVAL '2 minutes') AS w, count(*) AS n FROM events GROUP BY 1, 2, 3))
WHERE place < 3
--- duckdb
SELECT kind, user, s, n, ROW_NUMBER() OVER (PARTITION BY s, kind ORDER BY n DESC, user NULLS FIRST) AS place
FROM (SELECT kind, user, bucket(INTERVAL '2 minutes', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2, 3) QUALIFY place < 3

--- window_of_ranked_windows
SELECT tumble(INTERVAL '5 minutes') AS w, user, count(*) AS wins FROM (
  SELECT user, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC, user) AS place
  FROM (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2))
WHERE place = 1 GROUP BY 1, 2
--- duckdb
SELECT span(bucket(INTERVAL '5 minutes', s), INTERVAL '5 minutes'), user, count(*) FROM (
  SELECT user, s FROM (SELECT user, bucket(INTERVAL '30 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC, user) = 1) GROUP BY 1, 2

--- over_in_the_query_of_the_window
SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n,
       ROW_NUMBER() OVER (PARTITION BY tumble(INTERVAL '1 minute') ORDER BY count(*) DESC, user) AS place
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(s, INTERVAL '1 minute'), n, ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC, user)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)

--- share_of_a_window
SELECT w, kind, round(100.0 * n / SUM(n) OVER (PARTITION BY w), 3) AS percent, n = MAX(n) OVER (PARTITION BY w) AS is_most
FROM (SELECT tumble(INTERVAL '1 minute') AS w, kind, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT span(s, INTERVAL '1 minute'), kind, round(100.0 * n / SUM(n) OVER (PARTITION BY s), 3), n = MAX(n) OVER (PARTITION BY s)
FROM (SELECT bucket(INTERVAL '1 minute', ts) AS s, kind, count(*) AS n FROM events GROUP BY 1, 2)

--- over_table_form
SELECT window_start, user, n, RANK() OVER (PARTITION BY window_start ORDER BY n DESC) AS place
FROM (SELECT window_start, window_end, user, count(*) AS n FROM tumble(events, INTERVAL '1 minute') GROUP BY 1, 2, 3)
--- duckdb
SELECT s, user, n, RANK() OVER (PARTITION BY s ORDER BY n DESC)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)

--- first_and_last_over
SELECT w, user, FIRST_VALUE(user) OVER (PARTITION BY w ORDER BY n, user) AS least, NTILE(3) OVER (PARTITION BY w ORDER BY n, user) AS third,
       COUNT(*) OVER (PARTITION BY w) AS users
FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT span(s, INTERVAL '1 minute'), user, FIRST_VALUE(user) OVER (PARTITION BY s ORDER BY n, user),
       NTILE(3) OVER (PARTITION BY s ORDER BY n, user), COUNT(*) OVER (PARTITION BY s)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)
