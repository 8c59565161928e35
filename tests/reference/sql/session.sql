-- Sessions: a row that comes when its key was quiet for the gap begins the next one.

--- session_by_user
SELECT user, session(INTERVAL '5 seconds') AS window, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '5 seconds'}, count(*)
FROM sessions(INTERVAL '5 seconds') GROUP BY user, session

--- session_of_one_second
SELECT user, session(INTERVAL '1 second') AS window, count(*) AS n, sum(amount) AS total FROM events GROUP BY user, window
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '1 second'}, count(*), sum(amount)
FROM sessions(INTERVAL '1 second') GROUP BY user, session

--- session_longer_than_all_pauses_but_one
SELECT user, session(INTERVAL '10 minutes') AS window, count(*) AS n, avg(price) AS mean FROM events GROUP BY 1, 2
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '10 minutes'}, count(*), avg(price)
FROM sessions(INTERVAL '10 minutes') GROUP BY user, session

--- session_without_key
SELECT session(INTERVAL '1 second') AS window, count(*) AS n, min(id) AS first_id FROM events GROUP BY 1
--- duckdb
SELECT {'start': min(ts), 'end': max(ts) + INTERVAL '1 second'}, count(*), min(id) FROM (
  SELECT *, sum(fresh) OVER (ORDER BY ts, id) AS session FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (ORDER BY ts, id) < INTERVAL '1 second' THEN 0 ELSE 1 END AS fresh FROM events))
GROUP BY session

--- session_by_two_keys
SELECT user, kind, session(INTERVAL '20 seconds') AS w, count(*) AS n, max(ts) - min(ts) AS length
FROM events GROUP BY user, kind, w
--- duckdb
SELECT user, kind, {'start': min(ts), 'end': max(ts) + INTERVAL '20 seconds'}, count(*), max(ts) - min(ts) FROM (
  SELECT *, sum(fresh) OVER (PARTITION BY user, kind ORDER BY ts, id) AS session FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY user, kind ORDER BY ts, id) < INTERVAL '20 seconds' THEN 0 ELSE 1 END
    AS fresh FROM events)) GROUP BY user, kind, session

--- session_by_expression
SELECT amount % 2 = 0 AS even, session(INTERVAL '3 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT even, {'start': min(ts), 'end': max(ts) + INTERVAL '3 seconds'}, count(*) FROM (
  SELECT *, sum(fresh) OVER (PARTITION BY even ORDER BY ts, id) AS session FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY even ORDER BY ts, id) < INTERVAL '3 seconds' THEN 0 ELSE 1 END AS fresh
    FROM (SELECT *, amount % 2 = 0 AS even FROM events))) GROUP BY even, session

--- session_distinct_and_text
SELECT user, session(INTERVAL '8 seconds') AS window, count(DISTINCT kind) AS kinds, count(*) FILTER (WHERE ok) AS good,
       max_by(kind, id) AS last_kind, sort_array(collect_list(amount)) AS amounts
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '8 seconds'}, count(DISTINCT kind), count(*) FILTER (WHERE ok),
       arg_max_null(kind, id), coalesce(list_sort(list(amount) FILTER (WHERE amount IS NOT NULL)), [])
FROM sessions(INTERVAL '8 seconds') GROUP BY user, session

--- session_having
SELECT user, session(INTERVAL '4 seconds') AS window, sum(cost) AS total FROM events GROUP BY 1, 2 HAVING count(*) BETWEEN 2 AND 6
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '4 seconds'}, sum(cost)
FROM sessions(INTERVAL '4 seconds') GROUP BY user, session HAVING count(*) BETWEEN 2 AND 6

--- session_start_and_end
SELECT user, window.end - window.start AS length, n
FROM (SELECT user, session(INTERVAL '30 seconds') AS window, count(*) AS n FROM events WHERE ok GROUP BY 1, 2) WHERE n > 1
--- duckdb
SELECT user, max(ts) - min(ts) + INTERVAL '30 seconds', count(*) FROM (
  SELECT *, sum(fresh) OVER (PARTITION BY user ORDER BY ts, id) AS session FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY user ORDER BY ts, id) < INTERVAL '30 seconds' THEN 0 ELSE 1 END AS fresh
    FROM events WHERE ok)) GROUP BY user, session HAVING count(*) > 1

--- session_before_1970
SELECT user, session(INTERVAL '15 seconds') AS window, count(*) AS n FROM ancient GROUP BY 1, 2
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '15 seconds'}, count(*) FROM (
  SELECT *, sum(fresh) OVER (PARTITION BY user ORDER BY ts, id) AS session FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY user ORDER BY ts, id) < INTERVAL '15 seconds' THEN 0 ELSE 1 END AS fresh
    FROM ancient)) GROUP BY user, session
