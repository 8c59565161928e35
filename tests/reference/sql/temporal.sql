-- Joins with versions: each row with what the other table had of its key at the row's event time.

--- temporal_inner
SELECT e.id AS id, e.ts AS ts, l.id AS version, l.amount AS allowed FROM events e
JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user
--- duckdb
SELECT e.id, e.ts, l.id, l.amount FROM events e ASOF JOIN versions l ON e.user = l.user AND e.ts >= l.ts

--- temporal_left
SELECT e.id AS id, e.user AS user, l.id AS version, l.user AS owner, l.ts AS since FROM events e
LEFT JOIN limits FOR SYSTEM_TIME AS OF e.ts l ON l.user = e.user
--- duckdb
SELECT e.id, e.user, l.id, l.user, l.ts FROM events e ASOF LEFT JOIN versions l ON e.user = l.user AND e.ts >= l.ts

--- temporal_condition_of_the_version
SELECT e.id AS id, l.id AS version, l.amount AS allowed FROM events e
JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user AND l.amount > 30
--- duckdb
SELECT e.id, l.id, l.amount FROM events e ASOF JOIN versions l ON e.user = l.user AND e.ts >= l.ts WHERE l.amount > 30

--- temporal_where_of_the_version
SELECT e.id AS id, l.id AS version FROM events e JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user
WHERE l.amount > 30 AND e.kind = 'buy'
--- duckdb
SELECT e.id, l.id FROM events e ASOF JOIN versions l ON e.user = l.user AND e.ts >= l.ts WHERE l.amount > 30 AND e.kind = 'buy'

--- temporal_left_condition_of_both
SELECT e.id AS id, l.id AS version, coalesce(l.amount, -1) AS allowed FROM events e
LEFT JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user AND e.amount < l.amount AND e.ok
--- duckdb
SELECT e.id, CASE WHEN e.amount < l.amount AND e.ok THEN l.id END,
       CASE WHEN e.amount < l.amount AND e.ok THEN coalesce(l.amount, -1) ELSE -1 END
FROM events e ASOF LEFT JOIN versions l ON e.user = l.user AND e.ts >= l.ts

--- temporal_of_the_hidden_time
SELECT e.id AS id, limits.id AS version, e.ts - limits.ts AS age FROM events e
JOIN limits FOR SYSTEM_TIME AS OF e._timestamp USING (user)
--- duckdb
SELECT e.id, l.id, e.ts - l.ts FROM events e ASOF JOIN versions l ON e.user = l.user AND e.ts >= l.ts

--- temporal_key_of_an_expression
SELECT e.id AS id, l.id AS version FROM (SELECT id, kind, ts AS at FROM events) e
LEFT JOIN limits FOR SYSTEM_TIME AS OF at AS l ON l.user = CASE e.kind WHEN 'buy' THEN 'ann' WHEN 'click' THEN 'bob' ELSE 'cy' END
--- duckdb
SELECT e.id, l.id
FROM (SELECT *, CASE kind WHEN 'buy' THEN 'ann' WHEN 'click' THEN 'bob' ELSE 'cy' END AS k FROM events) e
ASOF LEFT JOIN versions l ON e.k = l.user AND e.ts >= l.ts

--- temporal_of_the_newest_rows
WITH newest AS (
  SELECT user, id, amount, ts FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts DESC, id DESC) AS place FROM refunds) WHERE place = 1)
SELECT e.id AS id, n.id AS version, n.amount AS amount FROM events e
JOIN newest FOR SYSTEM_TIME AS OF e.ts AS n ON e.user = n.user
--- duckdb
SELECT e.id, l.id, l.amount FROM events e ASOF JOIN versions l ON e.user = l.user AND e.ts >= l.ts

--- temporal_of_the_newest_rows_by_two_columns
CREATE VIEW newest (name, what, event, total) AS
SELECT user, kind, id, amount + 1 FROM (
  SELECT user, kind, id, amount, ROW_NUMBER() OVER (PARTITION BY user, kind ORDER BY ts DESC, id) AS place
  FROM events WHERE ok) WHERE place = 1;
SELECT r.id AS id, n.event AS event, n.total AS total, n.what AS what FROM refunds r
LEFT JOIN newest FOR SYSTEM_TIME AS OF r.ts AS n ON n.name = r.user AND n.what = 'view'
--- duckdb
SELECT r.id, n.id, n.amount + 1, n.kind FROM refunds r ASOF LEFT JOIN (
  SELECT * FROM events WHERE ok AND kind = 'view' QUALIFY row_number() OVER (PARTITION BY user, ts ORDER BY id) = 1) n
ON n.user = r.user AND r.ts >= n.ts

--- temporal_of_the_first_rows
WITH firsts AS (
  SELECT user, id, amount FROM (
    SELECT user, id, amount, ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts, id) AS place FROM refunds) WHERE place = 1)
SELECT e.id AS id, f.id AS first, f.amount AS amount FROM events e
LEFT JOIN firsts FOR SYSTEM_TIME AS OF e.ts AS f ON e.user = f.user
--- duckdb
SELECT e.id, f.id, f.amount FROM events e LEFT JOIN (
  SELECT * FROM refunds QUALIFY row_number() OVER (PARTITION BY user ORDER BY ts, id) = 1) f
ON e.user = f.user AND e.ts >= f.ts

--- temporal_in_windows
SELECT tumble(INTERVAL '1 minute') AS window, user, count(*) AS n, sum(allowed) AS total FROM (
  SELECT e.user AS user, l.amount AS allowed FROM events e JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user)
GROUP BY 1, 2
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', e.ts), INTERVAL '1 minute'), e.user, count(*), sum(l.amount)
FROM events e ASOF JOIN (
  SELECT * FROM limits QUALIFY row_number() OVER (PARTITION BY user, ts ORDER BY amount DESC NULLS LAST) = 1) l
ON e.user = l.user AND e.ts >= l.ts GROUP BY 1, 2

--- temporal_updating_after
--- updating: user
SELECT e.user AS user, count(*) AS n, count(l.id) AS met, max(l.amount) AS most FROM events e
LEFT JOIN limits FOR SYSTEM_TIME AS OF e.ts AS l ON e.user = l.user GROUP BY e.user
--- duckdb
SELECT e.user, count(*), count(l.id), max(l.amount) FROM events e
ASOF LEFT JOIN versions l ON e.user = l.user AND e.ts >= l.ts GROUP BY e.user

--- temporal_of_windows
SELECT w.user AS user, w.window AS window, w.n AS n, l.id AS version FROM (
  SELECT user, tumble(INTERVAL '30 seconds') AS window, count(*) AS n FROM events GROUP BY 1, 2) w
JOIN limits FOR SYSTEM_TIME AS OF w._timestamp AS l ON w.user = l.user
--- duckdb
SELECT w.user, span(w.s, INTERVAL '30 seconds'), w.n, l.id FROM (
  SELECT user, bucket(INTERVAL '30 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) w
ASOF JOIN versions l ON w.user = l.user AND w.s + INTERVAL '30 seconds' - INTERVAL '1 microsecond' >= l.ts

--- temporal_twice
WITH newest AS (
  SELECT id, user, kind FROM (
    SELECT id, user, kind, ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts DESC, id DESC) AS place FROM events WHERE amount > 100)
  WHERE place = 1)
SELECT r.id AS id, l.id AS version, n.id AS event FROM refunds r
JOIN limits FOR SYSTEM_TIME AS OF r.ts AS l ON l.user = r.user
LEFT JOIN newest FOR SYSTEM_TIME AS OF r.ts AS n ON n.user = l.user
--- duckdb
SELECT r.id, l.id, n.id FROM refunds r ASOF JOIN versions l ON r.user = l.user AND r.ts >= l.ts
ASOF LEFT JOIN (
  SELECT * FROM events WHERE amount > 100 QUALIFY row_number() OVER (PARTITION BY user, ts ORDER BY id DESC) = 1) n
ON n.user = l.user AND r.ts >= n.ts

--- temporal_before_any_version
SELECT a.id AS id, l.id AS version FROM ancient a LEFT JOIN limits FOR SYSTEM_TIME AS OF a.ts AS l ON a.user = l.user
--- duckdb
SELECT a.id, l.id FROM ancient a ASOF LEFT JOIN versions l ON a.user = l.user AND a.ts >= l.ts
