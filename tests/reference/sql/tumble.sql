-- Tumbling windows: how they are named, what stands beside them in GROUP BY, and where they begin.

--- tumble_count
SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*) FROM events GROUP BY 1, 2

--- tumble_window_alone
SELECT tumble(INTERVAL '30 seconds') AS window, count(*) AS n FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '30 seconds', ts), INTERVAL '30 seconds'), count(*) FROM events GROUP BY 1

--- tumble_by_alias
SELECT kind, tumble(INTERVAL '1 minute') AS w, sum(amount) AS total FROM events GROUP BY kind, w
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute') AS w, sum(amount) FROM events GROUP BY kind, w

--- tumble_not_selected
SELECT user, count(*) AS n FROM events GROUP BY tumble(INTERVAL '1 minute'), user
--- duckdb
SELECT user, count(*) FROM events GROUP BY bucket(INTERVAL '1 minute', ts), user

--- tumble_function_in_both
SELECT tumble(INTERVAL '2 minutes') AS w, kind, count(*) AS n FROM events GROUP BY tumble(INTERVAL '2 minutes'), kind
--- duckdb
SELECT span(bucket(INTERVAL '2 minutes', ts), INTERVAL '2 minutes'), kind, count(*) FROM events GROUP BY 1, 2

--- tumble_expression_key
SELECT tumble(INTERVAL '1 minute') AS window, amount % 3 AS rest, count(*) AS n FROM events GROUP BY window, amount % 3
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), amount % 3 AS rest, count(*) FROM events GROUP BY 1, 2

--- tumble_case_key_by_alias
SELECT CASE WHEN amount < 0 THEN 'minus' WHEN amount > 100 THEN 'much' ELSE coalesce(kind, '?') END AS class,
       tumble(INTERVAL '45 seconds') AS window, count(*) AS n, min(id) AS first_id
FROM events GROUP BY class, window
--- duckdb
SELECT CASE WHEN amount < 0 THEN 'minus' WHEN amount > 100 THEN 'much' ELSE coalesce(kind, '?') END AS class,
       span(bucket(INTERVAL '45 seconds', ts), INTERVAL '45 seconds') AS w, count(*), min(id)
FROM events GROUP BY class, w

--- tumble_key_of_functions
SELECT upper(user) AS who, date_trunc('hour', ts) AS hour, tumble(INTERVAL '5 minutes') AS window, count(*) AS n
FROM events GROUP BY upper(user), 2, window
--- duckdb
SELECT upper(user), date_trunc('hour', ts), span(bucket(INTERVAL '5 minutes', ts), INTERVAL '5 minutes'), count(*)
FROM events GROUP BY 1, 2, 3

--- tumble_many_keys
SELECT user, kind, ok, place.city AS city, place.zone AS zone, tumble(INTERVAL '1 minute') AS window, count(*) AS n
FROM events GROUP BY 1, 2, 3, 4, 5, 6
--- duckdb
SELECT user, kind, ok, place.city, place.zone, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*)
FROM events GROUP BY ALL

--- tumble_array_key
SELECT tags, tumble(INTERVAL '5 minutes') AS window, count(*) AS n FROM events GROUP BY tags, window
--- duckdb
SELECT tags, span(bucket(INTERVAL '5 minutes', ts), INTERVAL '5 minutes'), count(*) FROM events GROUP BY 1, 2

--- tumble_key_not_selected
SELECT count(*) AS n, max(amount) AS most FROM events GROUP BY tumble(INTERVAL '1 minute'), kind, ok
--- duckdb
SELECT count(*), max(amount) FROM events GROUP BY bucket(INTERVAL '1 minute', ts), kind, ok

--- tumble_keys_of_other_types
SELECT cost > 100 AS dear, price::INT AS whole, tumble(INTERVAL '10 minutes') AS window, count(*) AS n
FROM events GROUP BY 1, 2, 3
--- duckdb
SELECT cost > 100, trunc(price)::INT, span(bucket(INTERVAL '10 minutes', ts), INTERVAL '10 minutes'), count(*)
FROM events GROUP BY 1, 2, 3

--- tumble_having
SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1, 2 HAVING count(*) > 3
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*) AS n
FROM events GROUP BY 1, 2 HAVING count(*) > 3

--- tumble_having_of_what_is_not_selected
SELECT user, count(*) AS n FROM events GROUP BY user, tumble(INTERVAL '1 minute')
HAVING sum(amount) > 2 * avg(amount) AND user IS NOT NULL AND max(kind) <> 'buy'
--- duckdb
SELECT user, count(*) FROM events GROUP BY user, bucket(INTERVAL '1 minute', ts)
HAVING sum(amount) > 2 * avg(amount) AND user IS NOT NULL AND max(kind) <> 'buy'

--- tumble_where
SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events
WHERE ok AND amount > 10 AND kind IN ('view', 'buy') GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*) FROM events
WHERE ok AND amount > 10 AND kind IN ('view', 'buy') GROUP BY 1, 2

--- tumble_of_nothing
SELECT tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events WHERE amount > 1000000 GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*) FROM events WHERE amount > 1000000 GROUP BY 1

--- tumble_of_seven_seconds
SELECT tumble(INTERVAL '7 seconds') AS window, count(*) AS n, sum(price) AS total FROM events GROUP BY window
--- duckdb
SELECT span(bucket(INTERVAL '7 seconds', ts), INTERVAL '7 seconds'), count(*), sum(price) FROM events GROUP BY 1

--- tumble_of_a_quarter_second
SELECT tumble(INTERVAL '250 milliseconds') AS window, count(*) AS n FROM events GROUP BY window
--- duckdb
SELECT span(bucket(INTERVAL '250 milliseconds', ts), INTERVAL '250 milliseconds'), count(*) FROM events GROUP BY 1

--- tumble_of_a_day
SELECT tumble(INTERVAL '1 day') AS window, user, count(*) AS n, avg(amount) AS mean FROM events GROUP BY 1, 2
--- duckdb
SELECT span(bucket(INTERVAL '1 day', ts), INTERVAL '1 day'), user, count(*), avg(amount) FROM events GROUP BY 1, 2

--- tumble_start_and_end
SELECT user, window.start AS began, window.end AS ended, n
FROM (SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1, 2)
--- duckdb
SELECT user, bucket(INTERVAL '1 minute', ts) AS began, began + INTERVAL '1 minute', count(*) FROM events GROUP BY 1, 2

--- tumble_start_in_the_same_query
SELECT tumble(INTERVAL '1 minute').start AS began, kind, count(*) AS n
FROM events GROUP BY tumble(INTERVAL '1 minute'), kind
--- duckdb
SELECT bucket(INTERVAL '1 minute', ts), kind, count(*) FROM events GROUP BY 1, 2

--- tumble_filtered_outside
SELECT window.end - window.start AS width, extract(minute FROM window.start) AS minute, n * 2 AS twice
FROM (SELECT tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1)
WHERE n > 5 AND window.start >= TIMESTAMP '2024-03-01 10:00:00'
--- duckdb
SELECT INTERVAL '1 minute', extract(minute FROM began), n * 2
FROM (SELECT bucket(INTERVAL '1 minute', ts) AS began, count(*) AS n FROM events GROUP BY 1)
WHERE n > 5 AND began >= TIMESTAMP '2024-03-01 10:00:00'

--- tumble_event_time_of_results
SELECT w, _timestamp AS at, n FROM (SELECT tumble(INTERVAL '20 seconds') AS w, count(*) AS n FROM events GROUP BY 1)
--- duckdb
SELECT span(began, INTERVAL '20 seconds'), began + INTERVAL '20 seconds' - INTERVAL '1 microsecond', n
FROM (SELECT bucket(INTERVAL '20 seconds', ts) AS began, count(*) AS n FROM events GROUP BY 1)

--- tumble_before_1970
SELECT user, tumble(INTERVAL '1 minute') AS window, count(*) AS n, max(ts) AS last FROM ancient GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*), max(ts) FROM ancient GROUP BY 1, 2

--- tumble_of_unnested
SELECT tag, tumble(INTERVAL '1 minute') AS window, count(*) AS n, count(DISTINCT user) AS users
FROM (SELECT user, unnest(tags) AS tag FROM events) GROUP BY tag, window
--- duckdb
SELECT tag, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*), count(DISTINCT user)
FROM (SELECT user, ts, unnest(tags) AS tag FROM events) GROUP BY 1, 2

--- tumble_keys_without_aggregates
SELECT user, tumble(INTERVAL '1 minute') AS window FROM events GROUP BY 1, 2
--- duckdb
SELECT DISTINCT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute') FROM events
