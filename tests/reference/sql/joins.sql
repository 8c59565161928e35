-- Joins without windows: rows meet whenever both are there, and what was given without a match is taken back.

--- join_inner
SELECT e.id AS id, e.amount AS amount, r.amount AS refunded FROM events e JOIN refunds r ON e.id = r.id
--- duckdb
SELECT e.id, e.amount, r.amount FROM events e JOIN refunds r ON e.id = r.id

--- join_inner_two_keys
SELECT e.id AS id, r.id AS refund, e.user FROM events e JOIN refunds r ON e.user = r.user AND e.amount = r.amount
--- duckdb
SELECT e.id, r.id, e.user FROM events e JOIN refunds r ON e.user = r.user AND e.amount = r.amount

--- join_inner_expression_keys
SELECT e.id AS id, r.id AS refund FROM events e JOIN refunds r ON e.id / 4 = r.id AND upper(e.user) = upper(r.user)
--- duckdb
SELECT e.id, r.id FROM events e JOIN refunds r ON e.id // 4 = r.id AND upper(e.user) = upper(r.user)

--- join_inner_with_condition
SELECT e.id AS id, e.amount + r.amount AS total FROM events e JOIN refunds r ON e.id = r.id AND e.amount > r.amount WHERE e.ok
--- duckdb
SELECT e.id, e.amount + r.amount FROM events e JOIN refunds r ON e.id = r.id AND e.amount > r.amount WHERE e.ok

--- join_listed_tables
SELECT e.id AS id, r.amount AS refunded FROM events e, refunds r WHERE e.id = r.id AND r.amount > 20 AND e.kind = 'buy'
--- duckdb
SELECT e.id, r.amount FROM events e, refunds r WHERE e.id = r.id AND r.amount > 20 AND e.kind = 'buy'

--- join_where_of_both_tables
SELECT e.id AS id, r.id AS refund FROM events e JOIN refunds r ON e.user = r.user
WHERE e.amount = r.amount AND e.id <> r.id AND (e.kind IS NULL OR r.id > e.id)
--- duckdb
SELECT e.id, r.id FROM events e JOIN refunds r ON e.user = r.user
WHERE e.amount = r.amount AND e.id <> r.id AND (e.kind IS NULL OR r.id > e.id)

--- join_where_before_full
--- updating
SELECT e.id AS id, r.id AS refund, f.id AS other
FROM events e JOIN refunds r ON e.id = r.id FULL JOIN refunds f ON f.id = e.id + 3 WHERE e.amount > r.amount
--- duckdb
SELECT e.id, r.id, f.id
FROM events e JOIN refunds r ON e.id = r.id FULL JOIN refunds f ON f.id = e.id + 3 WHERE e.amount > r.amount

--- join_with_the_end_of_a_window
SELECT e.id AS id, e.amount AS amount, h.until AS until
FROM events e
JOIN (
  SELECT max(amount) AS highest, window_end AS until FROM tumble(events, INTERVAL '1 minute') GROUP BY window_start, window_end
) h ON e.amount = h.highest
WHERE e.ts BETWEEN h.until - INTERVAL '1 minute' AND h.until
--- duckdb
SELECT e.id, e.amount, h.until
FROM events e
JOIN (
  SELECT max(amount) AS highest, bucket(INTERVAL '1 minute', ts) + INTERVAL '1 minute' AS until FROM events GROUP BY 2
) h ON e.amount = h.highest
WHERE e.ts BETWEEN h.until - INTERVAL '1 minute' AND h.until

--- join_with_the_end_of_hops
SELECT r.id AS id, h.number AS number, h.until AS until
FROM refunds r
JOIN (
  SELECT user, count(*) AS number, window_end AS until
  FROM hop(events, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY user, window_start, window_end
) h ON r.user = h.user AND r.ts >= h.until AND r.ts < h.until + INTERVAL '20 seconds'
--- duckdb
SELECT r.id, h.number, h.until
FROM refunds r
JOIN (
  SELECT user, count(*) AS number, window_end AS until
  FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY user, window_start, window_end
) h ON r.user = h.user AND r.ts >= h.until AND r.ts < h.until + INTERVAL '20 seconds'

--- join_of_different_types
SELECT e.id AS id, r.amount AS refunded FROM events e JOIN (SELECT CAST(id AS INT) AS id, amount FROM refunds) r ON e.id = r.id
--- duckdb
SELECT e.id, r.amount FROM events e JOIN refunds r ON e.id = r.id

--- join_left
--- updating
SELECT e.id AS id, e.kind AS kind, r.amount AS refunded FROM events e LEFT JOIN refunds r ON e.id = r.id
--- duckdb
SELECT e.id, e.kind, r.amount FROM events e LEFT JOIN refunds r ON e.id = r.id

--- join_left_many_matches
--- updating
SELECT e.id AS id, r.id AS refund FROM events e LEFT JOIN refunds r ON e.user = r.user AND e.amount = r.amount
--- duckdb
SELECT e.id, r.id FROM events e LEFT JOIN refunds r ON e.user = r.user AND e.amount = r.amount

--- join_left_with_condition
--- updating
SELECT e.id AS id, r.amount AS refunded FROM events e LEFT JOIN refunds r ON e.id = r.id AND r.amount < e.amount
--- duckdb
SELECT e.id, r.amount FROM events e LEFT JOIN refunds r ON e.id = r.id AND r.amount < e.amount

--- join_right
--- updating
SELECT r.id AS id, e.kind AS kind, r.amount AS refunded FROM events e RIGHT JOIN refunds r ON e.id = r.id * 3
--- duckdb
SELECT r.id, e.kind, r.amount FROM events e RIGHT JOIN refunds r ON e.id = r.id * 3

--- join_full
--- updating
SELECT e.id AS id, r.id AS refund, e.user AS user, r.amount AS refunded FROM events e FULL JOIN refunds r ON e.id = r.id * 3
--- duckdb
SELECT e.id, r.id, e.user, r.amount FROM events e FULL JOIN refunds r ON e.id = r.id * 3

--- join_full_null_keys
--- updating
SELECT e.id AS id, r.id AS refund FROM (SELECT * FROM events WHERE amount > 130 OR amount IS NULL) e
FULL JOIN refunds r ON e.amount - 100 = r.amount AND e.user = r.user
--- duckdb
SELECT e.id, r.id FROM (SELECT * FROM events WHERE amount > 130 OR amount IS NULL) e
FULL JOIN refunds r ON e.amount - 100 = r.amount AND e.user = r.user

--- join_semi
SELECT e.id, e.amount FROM events e LEFT SEMI JOIN refunds r ON e.user = r.user AND e.amount = r.amount
--- duckdb
SELECT e.id, e.amount FROM events e SEMI JOIN refunds r ON e.user = r.user AND e.amount = r.amount

--- join_anti
--- updating
SELECT e.id, e.amount FROM events e LEFT ANTI JOIN refunds r ON e.user = r.user AND e.amount = r.amount
--- duckdb
SELECT e.id, e.amount FROM events e ANTI JOIN refunds r ON e.user = r.user AND e.amount = r.amount

--- join_self
SELECT a.id AS id, b.id AS next FROM events a JOIN events b ON a.id + 1 = b.id AND a.user = b.user
--- duckdb
SELECT a.id, b.id FROM events a JOIN events b ON a.id + 1 = b.id AND a.user = b.user

--- join_self_left
--- updating
SELECT a.id AS id, b.kind AS next_kind FROM events a LEFT JOIN events b ON a.id + 1 = b.id
--- duckdb
SELECT a.id, b.kind FROM events a LEFT JOIN events b ON a.id + 1 = b.id

--- join_three
SELECT e.id AS id, r.amount AS refunded, a.amount AS old FROM events e JOIN refunds r ON e.id = r.id JOIN ancient a ON a.id = r.id
--- duckdb
SELECT e.id, r.amount, a.amount FROM events e JOIN refunds r ON e.id = r.id JOIN ancient a ON a.id = r.id

--- join_three_outer
--- updating
SELECT e.id AS id, r.amount AS refunded, a.amount AS old FROM events e LEFT JOIN refunds r ON e.id = r.id * 2
LEFT JOIN ancient a ON a.id = r.id AND a.user = e.user
--- duckdb
SELECT e.id, r.amount, a.amount FROM events e LEFT JOIN refunds r ON e.id = r.id * 2
LEFT JOIN ancient a ON a.id = r.id AND a.user = e.user

--- join_of_joins
SELECT x.id AS id, y.old AS old FROM (SELECT e.id AS id, r.user AS user FROM events e JOIN refunds r ON e.id = r.id) x
JOIN (SELECT r.id AS id, a.amount AS old FROM refunds r JOIN ancient a ON r.id = a.id) y ON x.id = y.id
--- duckdb
SELECT x.id, y.old FROM (SELECT e.id AS id, r.user AS user FROM events e JOIN refunds r ON e.id = r.id) x
JOIN (SELECT r.id AS id, a.amount AS old FROM refunds r JOIN ancient a ON r.id = a.id) y ON x.id = y.id

--- join_using
SELECT id, kind, r.amount AS refunded FROM events JOIN refunds r USING (id)
--- duckdb
SELECT id, kind, r.amount FROM events JOIN refunds r USING (id)

--- join_star
SELECT * FROM (SELECT id, kind FROM events) e JOIN (SELECT id AS refund, amount FROM refunds) r ON e.id = r.refund
--- duckdb
SELECT * FROM (SELECT id, kind FROM events) e JOIN (SELECT id AS refund, amount FROM refunds) r ON e.id = r.refund

--- join_then_window
SELECT e.kind AS kind, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events e JOIN refunds r ON e.id = r.id GROUP BY 1, 2
--- duckdb
SELECT e.kind, span(bucket(INTERVAL '1 minute', greatest(e.ts, r.ts)), INTERVAL '1 minute'), count(*) FROM events e
JOIN refunds r ON e.id = r.id GROUP BY 1, 2

--- join_then_group
--- updating: kind
SELECT e.kind AS kind, count(*) AS n, sum(r.amount) AS refunded FROM events e JOIN refunds r ON e.id = r.id GROUP BY e.kind
--- duckdb
SELECT e.kind, count(*), sum(r.amount) FROM events e JOIN refunds r ON e.id = r.id GROUP BY e.kind

--- join_left_then_group
--- updating: kind
SELECT e.kind AS kind, count(*) AS n, count(r.id) AS refunds, sum(r.amount) AS refunded
FROM events e LEFT JOIN refunds r ON e.id = r.id GROUP BY e.kind
--- duckdb
SELECT e.kind, count(*), count(r.id), sum(r.amount) FROM events e LEFT JOIN refunds r ON e.id = r.id GROUP BY e.kind

--- join_updating_right
--- updating
SELECT r.id AS id, u.n AS n FROM refunds r JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user
--- duckdb
SELECT r.id, u.n FROM refunds r JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user

--- join_updating_left_outer
--- updating
SELECT r.id AS id, u.n AS n FROM refunds r LEFT JOIN (SELECT user, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY user) u ON r.user = u.user
--- duckdb
SELECT r.id, u.n FROM refunds r LEFT JOIN (SELECT user, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY user) u ON r.user = u.user

--- join_updating_both
--- updating
SELECT a.user AS user, a.n AS n, b.total AS total FROM (SELECT user, count(*) AS n FROM events GROUP BY user) a
JOIN (SELECT user, sum(amount) AS total FROM refunds GROUP BY user) b ON a.user = b.user
--- duckdb
SELECT a.user, a.n, b.total FROM (SELECT user, count(*) AS n FROM events GROUP BY user) a
JOIN (SELECT user, sum(amount) AS total FROM refunds GROUP BY user) b ON a.user = b.user

--- join_updating_full
--- updating
SELECT a.user AS user, b.user AS other, a.n AS n, b.total AS total FROM (SELECT user, count(*) AS n FROM events WHERE amount > 100 GROUP BY user) a
FULL JOIN (SELECT user, sum(amount) AS total FROM refunds GROUP BY user) b ON a.user = b.user
--- duckdb
SELECT a.user, b.user, a.n, b.total FROM (SELECT user, count(*) AS n FROM events WHERE amount > 100 GROUP BY user) a
FULL JOIN (SELECT user, sum(amount) AS total FROM refunds GROUP BY user) b ON a.user = b.user

--- join_updating_by_changing_key
--- updating
SELECT a.user AS user, a.n AS n, r.amount AS amount FROM (SELECT user, count(*) % 7 AS n FROM events GROUP BY user) a
LEFT JOIN refunds r ON a.n = r.id
--- duckdb
SELECT a.user, a.n, r.amount FROM (SELECT user, count(*) % 7 AS n FROM events GROUP BY user) a
LEFT JOIN refunds r ON a.n = r.id

--- join_updating_semi
--- updating
SELECT r.id FROM refunds r LEFT SEMI JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user AND u.n % 2 = 0
--- duckdb
SELECT r.id FROM refunds r SEMI JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user AND u.n % 2 = 0

--- join_updating_anti
--- updating
SELECT r.id FROM refunds r LEFT ANTI JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user AND u.n % 2 = 0
--- duckdb
SELECT r.id FROM refunds r ANTI JOIN (SELECT user, count(*) AS n FROM events GROUP BY user) u ON r.user = u.user AND u.n % 2 = 0

--- join_updating_then_group
--- updating: n
SELECT u.n AS n, count(*) AS refunds FROM refunds r JOIN (SELECT user, count(*) % 10 AS n FROM events GROUP BY user) u ON r.user = u.user GROUP BY u.n
--- duckdb
SELECT u.n, count(*) FROM refunds r JOIN (SELECT user, count(*) % 10 AS n FROM events GROUP BY user) u ON r.user = u.user GROUP BY u.n

--- join_distinct
--- updating
SELECT d.user AS user, r.id AS refund FROM (SELECT DISTINCT user FROM events WHERE kind = 'buy') d JOIN refunds r ON d.user = r.user
--- duckdb
SELECT d.user, r.id FROM (SELECT DISTINCT user FROM events WHERE kind = 'buy') d JOIN refunds r ON d.user = r.user

--- join_top_n
--- updating
SELECT t.user AS user, t.amount AS amount, r.amount AS refunded FROM (
  SELECT * FROM (SELECT user, amount, id, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount DESC NULLS LAST, id) AS place FROM events) WHERE place <= 2
) t JOIN refunds r ON t.id = r.id
--- duckdb
SELECT t.user, t.amount, r.amount FROM (
  SELECT * FROM (SELECT user, amount, id, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount DESC NULLS LAST, id) AS place FROM events) WHERE place <= 2
) t JOIN refunds r ON t.id = r.id

--- join_window_with_rows
SELECT e.id AS id, w.n AS n FROM events e JOIN (SELECT user, tumble(INTERVAL '5 minutes') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) w
ON e.user = w.user AND e.id % 4 = w.n
--- duckdb
SELECT e.id, w.n FROM events e JOIN (SELECT user, bucket(INTERVAL '5 minutes', ts) AS w, count(*) AS n FROM refunds GROUP BY 1, 2) w
ON e.user = w.user AND e.id % 4 = w.n

--- join_struct_and_array
SELECT e.place.city AS city, e.tags[1] AS tag, r.amount AS refunded FROM events e JOIN refunds r ON e.id = r.id AND e.place.zone = 2
--- duckdb
SELECT e.place.city, e.tags[1], r.amount FROM events e JOIN refunds r ON e.id = r.id AND e.place.zone = 2

--- join_then_unnest
SELECT e.id AS id, tag FROM events e JOIN refunds r ON e.id = r.id CROSS JOIN UNNEST(e.tags) AS t(tag)
--- duckdb
SELECT e.id, unnest(e.tags) FROM events e JOIN refunds r ON e.id = r.id

--- join_union
SELECT x.id AS id, r.amount AS amount FROM (SELECT id, amount FROM events WHERE ok UNION ALL SELECT id, amount FROM ancient) x JOIN refunds r ON x.id = r.id
--- duckdb
SELECT x.id, r.amount FROM (SELECT id, amount FROM events WHERE ok UNION ALL SELECT id, amount FROM ancient) x JOIN refunds r ON x.id = r.id

--- join_view
CREATE VIEW buys AS SELECT id, user, price FROM events WHERE kind = 'buy';
SELECT b.id AS id, b.price AS price, r.amount AS refunded FROM buys b JOIN refunds r ON b.id = r.id
--- duckdb
SELECT b.id, b.price, r.amount FROM events b JOIN refunds r ON b.id = r.id WHERE b.kind = 'buy'

--- join_duplicate_rows
SELECT a.kind AS kind, r.id AS refund FROM (SELECT kind, amount FROM events WHERE kind = 'buy') a JOIN refunds r ON a.amount = r.amount
--- duckdb
SELECT a.kind, r.id FROM (SELECT kind, amount FROM events WHERE kind = 'buy') a JOIN refunds r ON a.amount = r.amount

--- join_count
--- updating:
SELECT count(*) AS n FROM events e JOIN refunds r ON e.id = r.id
--- duckdb
SELECT count(*) FROM events e JOIN refunds r ON e.id = r.id

--- join_interval
SELECT e.id AS id, r.id AS refund FROM events e JOIN refunds r
ON e.user = r.user AND e.ts BETWEEN r.ts - INTERVAL '5 seconds' AND r.ts + INTERVAL '10 seconds'
--- duckdb
SELECT e.id, r.id FROM events e JOIN refunds r
ON e.user = r.user AND e.ts BETWEEN r.ts - INTERVAL '5 seconds' AND r.ts + INTERVAL '10 seconds'

--- join_interval_one_way
SELECT e.id AS id, r.id AS refund FROM events e JOIN refunds r
ON e.user = r.user AND r.ts >= e.ts AND r.ts < e.ts + INTERVAL '1 minute' AND e.kind = 'buy'
--- duckdb
SELECT e.id, r.id FROM events e JOIN refunds r
ON e.user = r.user AND r.ts >= e.ts AND r.ts < e.ts + INTERVAL '1 minute' AND e.kind = 'buy'

--- join_interval_left
--- updating
SELECT e.id AS id, r.id AS refund FROM (SELECT id, user, ts AS at FROM events WHERE amount > 100) e LEFT JOIN refunds r
ON e.user = r.user AND r.ts BETWEEN e.at AND e.at + INTERVAL '15 seconds'
--- duckdb
SELECT e.id, r.id FROM (SELECT id, user, ts AS at FROM events WHERE amount > 100) e LEFT JOIN refunds r
ON e.user = r.user AND r.ts BETWEEN e.at AND e.at + INTERVAL '15 seconds'

--- join_interval_self
SELECT a.id AS id, b.id AS later FROM events a JOIN events b
ON a.user = b.user AND a.kind = b.kind AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '2 seconds'
--- duckdb
SELECT a.id, b.id FROM events a JOIN events b
ON a.user = b.user AND a.kind = b.kind AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '2 seconds'
