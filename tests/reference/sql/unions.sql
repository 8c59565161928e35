-- UNION ALL before windows, after them, and of changes with rows.

--- union_before_a_window
SELECT user, tumble(INTERVAL '1 minute') AS w, sum(amount) AS balance, count(*) AS n
FROM (SELECT user, amount FROM events UNION ALL SELECT user, -amount FROM refunds) GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(amount), count(*)
FROM (SELECT user, amount, ts FROM events UNION ALL SELECT user, -amount, ts FROM refunds) GROUP BY 1, 2

--- union_of_a_table_with_itself
SELECT kind, tumble(INTERVAL '1 minute') AS w, count(*) AS n
FROM (SELECT kind FROM events WHERE ok UNION ALL SELECT kind FROM events WHERE amount > 50) GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*)
FROM (SELECT kind, ts FROM events WHERE ok UNION ALL SELECT kind, ts FROM events WHERE amount > 50) GROUP BY 1, 2

--- union_of_windows
SELECT w.start AS began, user, n FROM (
  SELECT tumble(INTERVAL '1 minute') AS w, user, count(*) AS n FROM events GROUP BY 1, 2
  UNION ALL
  SELECT tumble(INTERVAL '1 minute') AS w, user, -count(*) AS n FROM refunds GROUP BY 1, 2)
--- duckdb
SELECT bucket(INTERVAL '1 minute', ts), user, count(*) FROM events GROUP BY 1, 2
UNION ALL SELECT bucket(INTERVAL '1 minute', ts), user, -count(*) FROM refunds GROUP BY 1, 2

--- window_over_a_union_of_windows
SELECT w, user, sum(n) AS balance FROM (
  SELECT tumble(INTERVAL '1 minute') AS w, user, count(*) AS n FROM events GROUP BY 1, 2
  UNION ALL
  SELECT tumble(INTERVAL '1 minute') AS w, user, -count(*) AS n FROM refunds GROUP BY 1, 2)
GROUP BY w, user
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), user, sum(n)
FROM (SELECT ts, user, 1 AS n FROM events UNION ALL SELECT ts, user, -1 FROM refunds) GROUP BY 1, 2

--- union_of_windows_and_rows
SELECT 'window' AS origin, user, n FROM (SELECT tumble(INTERVAL '1 minute') AS w, user, count(*) AS n FROM events GROUP BY 1, 2)
UNION ALL SELECT 'row', user, amount FROM refunds
--- duckdb
SELECT 'window', user, n FROM (SELECT bucket(INTERVAL '1 minute', ts), user, count(*) AS n FROM events GROUP BY 1, 2)
UNION ALL SELECT 'row', user, amount FROM refunds

--- hop_over_a_union_of_three
SELECT hop(INTERVAL '30 seconds', INTERVAL '1 minute') AS w, origin, count(*) AS n FROM (
  SELECT 1 AS origin FROM events WHERE kind = 'buy' UNION ALL SELECT 2 FROM events WHERE kind = 'click' UNION ALL SELECT 3 FROM refunds)
GROUP BY 1, 2
--- duckdb
SELECT span(s, INTERVAL '1 minute'), origin, count(*) FROM (
  SELECT *, bucket(INTERVAL '30 seconds', ts) - k * INTERVAL '30 seconds' AS s FROM (
    SELECT 1 AS origin, ts FROM events WHERE kind = 'buy' UNION ALL SELECT 2, ts FROM events WHERE kind = 'click'
    UNION ALL SELECT 3, ts FROM refunds), range(2) AS r(k))
GROUP BY 1, 2

--- updating_over_a_union
--- updating: user
SELECT user, sum(amount) AS balance, count(*) AS n
FROM (SELECT user, amount FROM events UNION ALL SELECT user, -amount FROM refunds) GROUP BY user
--- duckdb
SELECT user, sum(amount), count(*)
FROM (SELECT user, amount FROM events UNION ALL SELECT user, -amount FROM refunds) GROUP BY user

--- union_of_changes_and_rows
--- updating
SELECT user, count(*) AS n FROM events GROUP BY user UNION ALL SELECT user, amount FROM refunds
--- duckdb
SELECT user, count(*) FROM events GROUP BY user UNION ALL SELECT user, amount FROM refunds

--- union_of_changes
--- updating
SELECT 'by kind' AS what, kind AS name, count(*) AS n FROM events GROUP BY kind
UNION ALL SELECT 'by user', user, sum(amount) FROM refunds GROUP BY user
--- duckdb
SELECT 'by kind', kind, count(*) FROM events GROUP BY kind UNION ALL SELECT 'by user', user, sum(amount) FROM refunds GROUP BY user

--- aggregate_over_a_union_of_changes_and_rows
--- updating: user
SELECT user, sum(n) AS total, count(*) AS parts FROM (
  SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind UNION ALL SELECT user, 'refund', -1 FROM refunds)
GROUP BY user
--- duckdb
SELECT user, sum(n), count(*) FROM (
  SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind UNION ALL SELECT user, 'refund', -1 FROM refunds)
GROUP BY user
