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

--- lookup_after_a_join
SELECT e.id AS id, r.amount AS refunded, p.city FROM events e JOIN refunds r ON e.id = r.id
JOIN people p ON p.name = r.user WHERE e.amount > 10 AND p.age > 20
--- duckdb
SELECT e.id, r.amount, p.city FROM events e JOIN refunds r ON e.id = r.id
JOIN people p ON p.name = r.user WHERE e.amount > 10 AND p.age > 20

--- lookup_before_a_join
SELECT e.id AS id, p.city, r.amount AS refunded FROM events e JOIN people p ON p.name = e.user AND p.age > e.amount
JOIN refunds r ON r.id = e.id AND r.amount < p.age
--- duckdb
SELECT e.id, p.city, r.amount FROM events e JOIN people p ON p.name = e.user AND p.age > e.amount
JOIN refunds r ON r.id = e.id AND r.amount < p.age

--- lookup_of_both_sides_of_a_join
SELECT e.id AS id, p.city AS bought_in, q.city AS refunded_in, t.fee FROM events e LEFT JOIN people p ON p.name = e.user
JOIN refunds r ON r.id = e.id LEFT JOIN people q ON q.name = lower(r.user)
LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = q.age % 3
--- duckdb
SELECT e.id, p.city, q.city, t.fee FROM events e LEFT JOIN people p ON p.name = e.user
JOIN refunds r ON r.id = e.id LEFT JOIN people q ON q.name = lower(r.user)
LEFT JOIN tariffs t ON t.kind = e.kind AND t.zone = q.age % 3

--- lookup_after_an_outer_join
--- updating
SELECT e.id AS id, r.id AS refund, p.city FROM events e LEFT JOIN refunds r ON e.id = r.id
LEFT JOIN people p ON p.name = r.user WHERE e.amount > 20
--- duckdb
SELECT e.id, r.id, p.city FROM events e LEFT JOIN refunds r ON e.id = r.id
LEFT JOIN people p ON p.name = r.user WHERE e.amount > 20

--- lookup_before_an_outer_join
--- updating
SELECT e.id AS id, p.city, r.id AS refund, r.amount FROM events e JOIN people p ON p.name = e.user
FULL JOIN refunds r ON r.id = e.id AND p.age > 30
--- duckdb
SELECT e.id, p.city, r.id, r.amount FROM events e JOIN people p ON p.name = e.user
FULL JOIN refunds r ON r.id = e.id AND p.age > 30

--- lookup_between_joins_of_windows
SELECT a.w, a.user, a.n, p.city, b.n AS refunds FROM (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2
) AS a LEFT JOIN people p ON p.name = a.user JOIN (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM refunds GROUP BY 1, 2
) AS b ON a.user = b.user AND a.w = b.w
--- duckdb
SELECT span(a.s, INTERVAL '1 minute'), a.user, a.n, p.city, b.n FROM (
  SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2
) AS a LEFT JOIN people p ON p.name = a.user JOIN (
  SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM refunds GROUP BY 1, 2
) AS b ON a.user = b.user AND a.s = b.s

--- lookup_after_unnest
SELECT e.id, t.tag, f.fee FROM events e CROSS JOIN UNNEST(e.tags) AS t(tag)
JOIN tariffs f ON f.kind = e.kind AND f.zone = ascii(t.tag) - 96 WHERE t.tag <> 'c'
--- duckdb
SELECT e.id, t.tag, f.fee FROM (SELECT *, unnest(tags) AS tag FROM events) AS e
JOIN (SELECT DISTINCT unnest(tags) AS tag FROM events) AS t ON t.tag = e.tag
JOIN tariffs f ON f.kind = e.kind AND f.zone = ascii(t.tag) - 96 WHERE t.tag <> 'c'

--- unnest_after_a_lookup
SELECT e.id, p.city, tag FROM events e LEFT JOIN people p ON p.name = e.user LEFT JOIN UNNEST(e.tags) AS t(tag) ON true
WHERE e.ok
--- duckdb
SELECT e.id, p.city, t.tag FROM events e LEFT JOIN people p ON p.name = e.user
LEFT JOIN (SELECT id, unnest(tags) AS tag FROM events) AS t ON t.id = e.id WHERE e.ok

--- unnest_before_a_right_join
--- updating
SELECT r.id AS refund, t.tag FROM events e CROSS JOIN UNNEST(e.tags) AS t(tag) RIGHT JOIN refunds r ON r.id = e.id
WHERE r.amount > 10
--- duckdb
SELECT r.id, e.tag FROM (SELECT id, unnest(tags) AS tag FROM events) AS e RIGHT JOIN refunds r ON r.id = e.id
WHERE r.amount > 10

--- join_by_an_unnested_value
SELECT e.id AS id, c.w, c.n FROM (SELECT id, tags, ts FROM events WHERE amount > 30) AS e CROSS JOIN UNNEST(e.tags) AS t(tag)
JOIN (
  SELECT user AS tag, tumble(INTERVAL '1 minute') AS w, count(*) AS n
  FROM (SELECT CASE WHEN user = 'ann' THEN 'a' ELSE 'b' END AS user FROM refunds) GROUP BY 1, 2
) AS c ON c.tag = t.tag
--- duckdb
SELECT e.id, span(c.s, INTERVAL '1 minute'), c.n FROM (SELECT id, unnest(tags) AS tag FROM events WHERE amount > 30) AS e
JOIN (
  SELECT CASE WHEN user = 'ann' THEN 'a' ELSE 'b' END AS tag, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n
  FROM refunds GROUP BY 1, 2
) AS c ON c.tag = e.tag

--- lookup_by_using
SELECT kind, zone, fee, e.id FROM (SELECT id, kind, place.zone AS zone FROM events) AS e JOIN tariffs USING (kind, zone)
--- duckdb
SELECT kind, zone, fee, e.id FROM (SELECT id, kind, place.zone AS zone FROM events) AS e JOIN tariffs USING (kind, zone)

--- lookup_listed_in_from
SELECT e.id AS id, p.city, r.amount FROM events e, people p, refunds r
WHERE p.name = e.user AND p.age > 20 AND r.id = e.id AND r.amount < e.amount + p.age
--- duckdb
SELECT e.id, p.city, r.amount FROM events e, people p, refunds r
WHERE p.name = e.user AND p.age > 20 AND r.id = e.id AND r.amount < e.amount + p.age

--- lookup_with_a_query_in_where
--- updating
SELECT e.id AS id, p.city FROM events e LEFT JOIN people p ON p.name = e.user
WHERE e.id IN (SELECT id FROM refunds) AND p.name NOT IN (SELECT user FROM refunds WHERE user = 'bob')
--- duckdb
SELECT e.id, p.city FROM events e LEFT JOIN people p ON p.name = e.user
WHERE e.id IN (SELECT id FROM refunds) AND p.name NOT IN (SELECT user FROM refunds WHERE user = 'bob')

--- lookup_of_a_query_without_a_name
SELECT id, p.city FROM (SELECT id, lower(user) AS who FROM events WHERE ok) JOIN people p ON p.name = who
--- duckdb
SELECT id, p.city FROM (SELECT id, lower(user) AS who FROM events WHERE ok) JOIN people p ON p.name = who

--- over_of_a_lookup_in_a_named_window
SELECT c.w, p.city, c.user, row_number() OVER v AS place FROM (
  SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2
) AS c JOIN people p ON c.user = p.name WINDOW v AS (PARTITION BY c.w, p.city ORDER BY c.n DESC, c.user)
--- duckdb
SELECT span(s, INTERVAL '1 minute'), p.city, c.user, row_number() OVER (PARTITION BY s, p.city ORDER BY n DESC, c.user)
FROM (SELECT user, bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2) AS c
JOIN people p ON c.user = p.name
