-- Queries inside expressions, which are joins.

--- in_query
SELECT id, user FROM events WHERE id IN (SELECT id FROM refunds WHERE amount > 30)
--- duckdb
SELECT id, user FROM events WHERE id IN (SELECT id FROM refunds WHERE amount > 30)

--- in_query_and_more
SELECT id FROM events WHERE ok AND amount IN (SELECT amount FROM refunds WHERE id < 40) AND kind = 'view'
--- duckdb
SELECT id FROM events WHERE ok AND amount IN (SELECT amount FROM refunds WHERE id < 40) AND kind = 'view'

--- in_grouped_query
--- updating
SELECT id FROM refunds WHERE user IN (SELECT user FROM events GROUP BY user HAVING count(*) % 2 = 0)
--- duckdb
SELECT id FROM refunds WHERE user IN (SELECT user FROM events GROUP BY user HAVING count(*) % 2 = 0)

--- not_in_query
--- updating
SELECT id FROM events WHERE id NOT IN (SELECT id FROM refunds)
--- duckdb
SELECT id FROM events WHERE id NOT IN (SELECT id FROM refunds)

--- not_in_query_with_nulls
--- updating
SELECT id FROM events WHERE amount NOT IN (SELECT amount FROM refunds WHERE amount > 10)
--- duckdb
SELECT id FROM events WHERE amount NOT IN (SELECT amount FROM refunds WHERE amount > 10)

--- not_in_query_of_a_null
--- updating
SELECT id FROM refunds WHERE id NOT IN (SELECT amount FROM events)
--- duckdb
SELECT id FROM refunds WHERE id NOT IN (SELECT amount FROM events)

--- exists
SELECT e.id FROM events e WHERE EXISTS (SELECT 1 FROM refunds r WHERE r.id = e.id AND r.amount > 15)
--- duckdb
SELECT e.id FROM events e WHERE EXISTS (SELECT 1 FROM refunds r WHERE r.id = e.id AND r.amount > 15)

--- exists_with_condition
SELECT e.id FROM events e WHERE EXISTS (SELECT * FROM refunds r WHERE r.user = e.user AND r.amount + 100 < e.amount)
--- duckdb
SELECT e.id FROM events e WHERE EXISTS (SELECT * FROM refunds r WHERE r.user = e.user AND r.amount + 100 < e.amount)

--- not_exists
--- updating
SELECT e.id FROM events e WHERE NOT EXISTS (SELECT 1 FROM refunds r WHERE r.id = e.id) AND e.ok
--- duckdb
SELECT e.id FROM events e WHERE NOT EXISTS (SELECT 1 FROM refunds r WHERE r.id = e.id) AND e.ok

--- exists_unrelated
SELECT id FROM refunds WHERE EXISTS (SELECT 1 FROM events WHERE amount > 150)
--- duckdb
SELECT id FROM refunds WHERE EXISTS (SELECT 1 FROM events WHERE amount > 150)

--- scalar_comparison
--- updating
SELECT id, amount FROM refunds WHERE amount > (SELECT avg(amount) FROM refunds)
--- duckdb
SELECT id, amount FROM refunds WHERE amount > (SELECT avg(amount) FROM refunds)

--- scalar_of_another_table
--- updating
SELECT id FROM refunds WHERE amount * 4 > (SELECT max(amount) FROM events) AND user IS NOT NULL
--- duckdb
SELECT id FROM refunds WHERE amount * 4 > (SELECT max(amount) FROM events) AND user IS NOT NULL

--- scalar_in_select
--- updating
SELECT id, (SELECT count(*) FROM events) AS n FROM refunds
--- duckdb
SELECT id, (SELECT count(*) FROM events) FROM refunds

--- in_and_exists
SELECT e.id FROM events e WHERE e.id IN (SELECT id FROM refunds) AND EXISTS (SELECT 1 FROM ancient a WHERE a.id = e.id)
--- duckdb
SELECT e.id FROM events e WHERE e.id IN (SELECT id FROM refunds) AND EXISTS (SELECT 1 FROM ancient a WHERE a.id = e.id)

--- in_query_then_group
--- updating: kind
SELECT kind, count(*) AS n FROM events WHERE id IN (SELECT id FROM refunds) GROUP BY kind
--- duckdb
SELECT kind, count(*) FROM events WHERE id IN (SELECT id FROM refunds) GROUP BY kind
