-- Windows as tables: FROM tumble(…) and FROM hop(…), with window_start and window_end.

--- tumble_table
SELECT user, window_start, window_end, count(*) AS n FROM tumble(events, INTERVAL '1 minute')
GROUP BY user, window_start, window_end
--- duckdb
SELECT user, bucket(INTERVAL '1 minute', ts) AS s, s + INTERVAL '1 minute', count(*) FROM events GROUP BY 1, 2

--- tumble_table_by_its_start
SELECT window_start, sum(amount) AS total FROM tumble(events, INTERVAL '20 seconds') GROUP BY window_start
--- duckdb
SELECT bucket(INTERVAL '20 seconds', ts), sum(amount) FROM events GROUP BY 1

--- tumble_table_rows
SELECT id, user, window_start, window_end FROM tumble(events, INTERVAL '1 minute') WHERE amount > 100
--- duckdb
SELECT id, user, bucket(INTERVAL '1 minute', ts) AS s, s + INTERVAL '1 minute' FROM events WHERE amount > 100

--- tumble_table_of_a_view
CREATE VIEW good AS SELECT user, amount * 2 AS twice FROM events WHERE ok;
SELECT window_start, window_end, user, max(twice) AS most FROM tumble(good, INTERVAL '90 seconds') GROUP BY 1, 2, 3
--- duckdb
SELECT s, s + INTERVAL '90 seconds', user, max(amount * 2) FROM (SELECT *, bucket(INTERVAL '90 seconds', ts) AS s FROM events)
WHERE ok GROUP BY 1, 2, 3

--- hop_table
SELECT window_start, window_end, kind, count(*) AS n, avg(amount) AS mean
FROM hop(events, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY window_start, window_end, kind
--- duckdb
SELECT window_start, window_end, kind, count(*), avg(amount)
FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY ALL

--- hop_table_that_does_not_divide
SELECT t.window_end AS ended, count(DISTINCT t.user) AS users
FROM hop(events, INTERVAL '15 seconds', INTERVAL '40 seconds') AS t GROUP BY t.window_start, t.window_end
--- duckdb
SELECT window_end, count(DISTINCT user) FROM hopped(INTERVAL '15 seconds', INTERVAL '40 seconds')
GROUP BY window_start, window_end

--- tumble_table_having
SELECT window_end AS ended, user, count(*) AS n FROM tumble(events, INTERVAL '1 minute')
WHERE kind <> 'view' GROUP BY window_start, window_end, user HAVING count(*) > 1
--- duckdb
SELECT bucket(INTERVAL '1 minute', ts) + INTERVAL '1 minute' AS ended, user, count(*) FROM events
WHERE kind <> 'view' GROUP BY 1, 2 HAVING count(*) > 1
