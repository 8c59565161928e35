-- Joins with the lookup tables `people` (by name) and `tariffs` (by kind and zone), which do not change.

--- lookup_inner
SELECT e.id, e.user, p.age, p.city FROM events e JOIN people p ON e.user = p.name
--- duckdb
SELECT e.id, e.user, p.age, p.city FROM events e JOIN people p ON e.user = p.name

--- lookup_left
SELECT e.id, e.user, p.name AS known, p.age FROM events e LEFT JOIN people p ON p.name = e.user
--- duckdb
SELECT e.id, e.user, p.name, p.age FROM events e LEFT JOIN people p ON p.name = e.user

--- lookup_by_an_expression_with_conditions
SELECT id, amount, p.age FROM events JOIN people p ON p.name = lower(user) AND p.age > 30 AND amount < p.age
--- duckdb
SELECT id, amount, p.age FROM events JOIN people p ON p.name = lower(user) AND p.age > 30 AND amount < p.age

--- lookup_left_with_conditions
SELECT id, amount, p.name AS known, p.city FROM events LEFT JOIN people p ON p.name = user AND p.age > 30 AND ok
WHERE amount > 20
--- duckdb
SELECT id, amount, p.name, p.city FROM events LEFT JOIN people p ON p.name = user AND p.age > 30 AND ok
WHERE amount > 20

--- lookup_by_two_columns
SELECT e.id, t.fee, e.amount * t.fee AS paid FROM events e JOIN tariffs t ON t.zone = e.place.zone AND t.kind = e.kind
--- duckdb
SELECT e.id, t.fee, e.amount * t.fee FROM events e JOIN tariffs t ON t.zone = e.place.zone AND t.kind = e.kind

--- lookup_in_a_row
SELECT e.id, p.city, t.fee FROM events e
JOIN people p ON e.user = p.name LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = p.age % 3
--- duckdb
SELECT e.id, p.city, t.fee FROM events e
JOIN people p ON e.user = p.name LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = p.age % 3

--- lookup_before_a_window
SELECT p.city, tumble(INTERVAL '1 minute') AS w, count(*) AS n, sum(e.amount) AS total, max(p.age) AS oldest
FROM events e LEFT JOIN people p ON e.user = p.name GROUP BY p.city, w
--- duckdb
SELECT p.city, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*), sum(e.amount), max(p.age)
FROM events e LEFT JOIN people p ON e.user = p.name GROUP BY 1, 2

--- lookup_after_a_window
SELECT c.w, c.user, c.n, p.age FROM (
  SELECT user, hop(INTERVAL '30 seconds', INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2
) AS c JOIN people p ON c.user = p.name WHERE c.n > 1
--- duckdb
SELECT span(window_start, INTERVAL '1 minute'), user, n, p.age FROM (
  SELECT user, window_start, count(*) AS n FROM hopped(INTERVAL '30 seconds', INTERVAL '1 minute') GROUP BY 1, 2
) AS c JOIN people p ON c.user = p.name WHERE n > 1

--- lookup_between_windows
SELECT w, p.city, sum(c.n) AS n FROM (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2
) AS c JOIN people p ON c.user = p.name GROUP BY w, p.city
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), p.city, count(*)
FROM events e JOIN people p ON e.user = p.name GROUP BY 1, 2

--- lookup_of_changes
--- updating
SELECT c.user, p.city, c.n FROM (SELECT user, count(*) AS n FROM events GROUP BY user) AS c
LEFT JOIN people p ON c.user = p.name
--- duckdb
SELECT c.user, p.city, c.n FROM (SELECT user, count(*) AS n FROM events GROUP BY user) AS c
LEFT JOIN people p ON c.user = p.name

--- aggregate_over_a_lookup_of_changes
--- updating: city
SELECT p.city, sum(c.n) AS n, count(*) AS people FROM (SELECT user, count(*) AS n FROM events GROUP BY user) AS c
JOIN people p ON c.user = p.name GROUP BY p.city
--- duckdb
SELECT p.city, sum(c.n), count(*) FROM (SELECT user, count(*) AS n FROM events GROUP BY user) AS c
JOIN people p ON c.user = p.name GROUP BY p.city

--- lookup_of_a_union
SELECT r.user, r.amount, p.age FROM (
  SELECT user, amount FROM events UNION ALL SELECT user, -amount FROM refunds) AS r JOIN people AS p ON p.name = r.user
--- duckdb
SELECT r.user, r.amount, p.age FROM (
  SELECT user, amount FROM events UNION ALL SELECT user, -amount FROM refunds) AS r JOIN people AS p ON p.name = r.user

--- lookup_of_windows_in_from
SELECT window_start, p.city, count(*) AS n FROM tumble(events, INTERVAL '1 minute') AS e
JOIN people p ON e.user = p.name GROUP BY window_start, p.city
--- duckdb
SELECT bucket(INTERVAL '1 minute', ts), p.city, count(*) FROM events e JOIN people p ON e.user = p.name GROUP BY 1, 2

--- over_of_a_lookup
SELECT c.w, p.city, c.user, row_number() OVER (PARTITION BY c.w, p.city ORDER BY c.n DESC, c.user) AS place FROM (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2
) AS c JOIN people p ON c.user = p.name
--- duckdb
SELECT span(s, INTERVAL '1 minute'), p.city, c.user, row_number() OVER (PARTITION BY s, p.city ORDER BY n DESC, c.user)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) AS c
JOIN people p ON c.user = p.name

--- distinct_of_a_lookup
--- updating
SELECT DISTINCT p.city, t.fee FROM events e
LEFT JOIN people p ON e.user = p.name LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = 1 AND e.amount > 10
--- duckdb
SELECT DISTINCT p.city, t.fee FROM events e
LEFT JOIN people p ON e.user = p.name LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = 1 AND e.amount > 10
