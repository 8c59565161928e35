-- Windows of windows, and queries inside queries: a result's event time is the end of its window less a microsecond.

--- tumble_of_tumble
SELECT tumble(INTERVAL '1 minute') AS w, max(n) AS most, sum(n) AS total, count(*) AS parts
FROM (SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', s), INTERVAL '1 minute'), max(n), sum(n), count(*)
FROM (SELECT user, bucket(INTERVAL '10 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1

--- tumble_of_tumble_by_key
SELECT user, tumble(INTERVAL '2 minutes') AS w, avg(n) AS mean, max(total) AS most
FROM (SELECT user, kind, tumble(INTERVAL '30 seconds') AS inner_window, count(*) AS n, sum(cost) AS total FROM events GROUP BY 1, 2, 3)
GROUP BY user, w
--- duckdb
SELECT user, span(bucket(INTERVAL '2 minutes', s), INTERVAL '2 minutes'), avg(n), max(total)
FROM (SELECT user, kind, bucket(INTERVAL '30 seconds', ts) AS s, count(*) AS n, sum(cost) AS total FROM events GROUP BY 1, 2, 3)
GROUP BY 1, 2

--- same_window_again
SELECT window, max(n) AS most, count(*) AS users
FROM (SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY window
--- duckdb
SELECT span(s, INTERVAL '1 minute'), max(n), count(*)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1

--- same_window_three_times
SELECT w, avg(kinds) AS mean FROM (
  SELECT w, user, count(*) AS kinds FROM (
    SELECT user, kind, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2, 3) GROUP BY w, user)
GROUP BY w
--- duckdb
SELECT span(s, INTERVAL '1 minute'), avg(kinds) FROM (
  SELECT s, user, count(*) AS kinds FROM (SELECT DISTINCT user, kind, bucket(INTERVAL '1 minute', ts) AS s FROM events) GROUP BY 1, 2)
GROUP BY 1

--- same_hop_again
SELECT w, n, count(*) AS users
FROM (SELECT user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2)
GROUP BY w, n HAVING count(*) > 1
--- duckdb
SELECT span(window_start, INTERVAL '1 minute'), n, count(*)
FROM (SELECT user, window_start, count(*) AS n FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY 1, 2)
GROUP BY 1, 2 HAVING count(*) > 1

--- tumble_of_hop
SELECT tumble(INTERVAL '1 minute') AS w, max(n) AS most, count(*) AS windows
FROM (SELECT hop(INTERVAL '10 seconds', INTERVAL '30 seconds') AS h, count(*) AS n FROM events GROUP BY 1) GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', window_end - INTERVAL '1 microsecond'), INTERVAL '1 minute'), max(n), count(*)
FROM (SELECT window_end, count(*) AS n FROM hopped(INTERVAL '10 seconds', INTERVAL '30 seconds') GROUP BY 1) GROUP BY 1

--- hop_of_tumble
SELECT hop(INTERVAL '30 seconds', INTERVAL '2 minutes') AS w, sum(n) AS total
FROM (SELECT kind, tumble(INTERVAL '10 seconds') AS t, count(*) AS n FROM events GROUP BY 1, 2) WHERE kind = 'view' GROUP BY w
--- duckdb
SELECT span(s, INTERVAL '2 minutes'), count(*) FROM (
  SELECT *, bucket(INTERVAL '30 seconds', moment) - k * INTERVAL '30 seconds' AS s
  FROM (SELECT kind, bucket(INTERVAL '10 seconds', ts) + INTERVAL '10 seconds' - INTERVAL '1 microsecond' AS moment FROM events), range(4) AS r(k))
WHERE s + INTERVAL '2 minutes' > moment AND kind = 'view' GROUP BY 1

--- tumble_of_session
SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS sessions, max(n) AS longest
FROM (SELECT user, session(INTERVAL '5 seconds') AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ended - INTERVAL '1 microsecond'), INTERVAL '1 minute'), count(*), max(n) FROM (
  SELECT max(ts) + INTERVAL '5 seconds' AS ended, count(*) AS n FROM sessions(INTERVAL '5 seconds') GROUP BY user, session) GROUP BY 1

--- session_of_tumble
SELECT user, session(INTERVAL '15 seconds') AS s, sum(n) AS total, count(*) AS windows
FROM (SELECT user, tumble(INTERVAL '5 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY user, s
--- duckdb
SELECT user, {'start': min(moment), 'end': max(moment) + INTERVAL '15 seconds'}, sum(n), count(*) FROM (
  SELECT *, sum(fresh) OVER (PARTITION BY user ORDER BY moment) AS session FROM (
    SELECT *, CASE WHEN moment - lag(moment) OVER (PARTITION BY user ORDER BY moment) < INTERVAL '15 seconds' THEN 0 ELSE 1 END AS fresh FROM (
      SELECT user, bucket(INTERVAL '5 seconds', ts) + INTERVAL '5 seconds' - INTERVAL '1 microsecond' AS moment, count(*) AS n
      FROM events GROUP BY 1, 2)))
GROUP BY user, session

--- three_levels
SELECT tumble(INTERVAL '5 minutes') AS w, max(most) AS most FROM (
  SELECT tumble(INTERVAL '1 minute') AS w, max(n) AS most FROM (
    SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1) GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '5 minutes', s), INTERVAL '5 minutes'), max(n)
FROM (SELECT user, bucket(INTERVAL '10 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1

--- subquery_before_the_window
SELECT who, tumble(INTERVAL '1 minute') AS w, sum(x) AS total
FROM (SELECT lower(user) AS who, x FROM (SELECT user, amount + 1 AS x FROM events WHERE amount > 0) WHERE x % 2 = 0) AS t
GROUP BY who, w
--- duckdb
SELECT lower(user), span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(amount + 1)
FROM events WHERE amount > 0 AND (amount + 1) % 2 = 0 GROUP BY 1, 2

--- common_table_expressions
WITH good AS (SELECT * FROM events WHERE ok),
     counted AS (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n, avg(price) AS mean FROM good GROUP BY user, w)
SELECT c.user, c.w.start AS began, c.n + 1 AS more, c.mean FROM counted AS c WHERE c.n > 1
--- duckdb
SELECT user, bucket(INTERVAL '1 minute', ts), count(*) + 1, avg(price) FROM events WHERE ok GROUP BY 1, 2 HAVING count(*) > 1

--- views_of_views
CREATE VIEW minutes AS SELECT user, kind, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2, 3;
CREATE VIEW busy AS SELECT * FROM minutes WHERE n >= 2;
SELECT w, kind, count(*) AS users, sum(n) AS total FROM busy GROUP BY w, kind
--- duckdb
SELECT span(s, INTERVAL '1 minute'), kind, count(*), sum(n)
FROM (SELECT user, kind, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2, 3) WHERE n >= 2 GROUP BY 1, 2

--- memory_table_between
CREATE TABLE minutes (w_start TIMESTAMP, user TEXT, n BIGINT);
INSERT INTO minutes SELECT w.start, user, n FROM (SELECT tumble(INTERVAL '1 minute') AS w, user, count(*) AS n FROM events GROUP BY 1, 2);
SELECT w_start, user, n * 10 AS tenfold FROM minutes WHERE n > 2
--- duckdb
SELECT bucket(INTERVAL '1 minute', ts), user, count(*) * 10 FROM events GROUP BY 1, 2 HAVING count(*) > 2

--- table_form_of_windowed_results
WITH counted AS (SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2)
SELECT window_start, user, max(n) AS most FROM tumble(counted, INTERVAL '1 minute') GROUP BY window_start, user
--- duckdb
SELECT bucket(INTERVAL '1 minute', s), user, max(n)
FROM (SELECT user, bucket(INTERVAL '10 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1, 2

--- updating_over_windows
--- updating: user
SELECT user, sum(n) AS total, max(n) AS most, count(*) AS windows
FROM (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY user
--- duckdb
SELECT user, sum(n), max(n), count(*)
FROM (SELECT user, bucket(INTERVAL '30 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY 1

--- updating_over_sessions
--- updating: user
SELECT user, count(*) AS sessions, avg(n) AS mean
FROM (SELECT user, session(INTERVAL '5 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2) GROUP BY user
--- duckdb
SELECT user, count(*), avg(n) FROM (SELECT user, count(*) AS n FROM sessions(INTERVAL '5 seconds') GROUP BY user, session) GROUP BY 1
