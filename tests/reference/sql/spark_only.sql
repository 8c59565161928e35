-- Functions that only Spark has, against the same question asked of Spark in one batch.

--- spark_shape_of_a_distribution
SELECT kind, tumble(INTERVAL '5 minutes') AS w, skewness(price) AS a, kurtosis(price) AS b FROM events
GROUP BY 1, 2 HAVING count(price) > 10
--- spark
SELECT kind, window(ts, '5 minutes') AS w, skewness(price), kurtosis(price) FROM events GROUP BY 1, 2 HAVING count(price) > 10

--- spark_try_sum
SELECT user, tumble(INTERVAL '1 minute') AS w, try_sum(amount) AS a, try_avg(amount) AS b FROM events GROUP BY 1, 2
--- spark
SELECT user, window(ts, '1 minute') AS w, try_sum(amount), try_avg(amount) FROM events GROUP BY 1, 2

--- spark_maps_of_aggregates
SELECT tumble(INTERVAL '1 minute') AS w, to_json(map_from_entries(array_sort(array_agg(DISTINCT struct(kind, 1 AS one))))) AS kinds
FROM events WHERE kind IS NOT NULL GROUP BY 1
--- spark
SELECT window(ts, '1 minute') AS w, to_json(map_from_entries(array_sort(array_agg(DISTINCT struct(kind, 1 AS one))))) AS kinds
FROM events WHERE kind IS NOT NULL GROUP BY 1

--- spark_bitmaps
SELECT tumble(INTERVAL '1 minute') AS w, bitmap_count(bitmap_construct_agg(bitmap_bit_position(id))) AS ids FROM events GROUP BY 1
--- spark
SELECT window(ts, '1 minute') AS w, bitmap_count(bitmap_construct_agg(bitmap_bit_position(id))) AS ids FROM events GROUP BY 1

--- spark_higher_order_functions
SELECT tumble(INTERVAL '2 minutes') AS w, aggregate(array_agg(amount), 0::BIGINT, (a, x) -> a + coalesce(x, 0)) AS total,
       size(filter(array_agg(kind), k -> k = 'buy')) AS bought
FROM events GROUP BY 1
--- spark
SELECT window(ts, '2 minutes') AS w, aggregate(array_agg(amount), 0L, (a, x) -> a + coalesce(x, 0L)) AS total,
       size(filter(array_agg(kind), k -> k = 'buy')) AS bought
FROM events GROUP BY 1

--- spark_modes
SELECT user, tumble(INTERVAL '5 minutes') AS w, mode(kind, true) AS usual FROM events GROUP BY 1, 2
--- spark
SELECT user, window(ts, '5 minutes') AS w, mode(kind, true) FROM events GROUP BY 1, 2

--- spark_hop_percentiles
SELECT hop(INTERVAL '1 minute', INTERVAL '3 minutes') AS w, percentile(price, array(0.1, 0.5, 0.9)) AS p, regr_syy(price, amount) AS s
FROM events GROUP BY 1 HAVING count(*) > 4
--- spark
SELECT window(ts, '3 minutes', '1 minute') AS w, percentile(price, array(0.1, 0.5, 0.9)) AS p, regr_syy(price, amount) AS s
FROM events GROUP BY 1 HAVING count(*) > 4

--- spark_sessions
SELECT user, session(INTERVAL '5123457 microseconds') AS w, count(*) AS n, kurtosis(amount) AS k FROM events GROUP BY 1, 2 HAVING count(amount) > 3
--- spark
SELECT user, session_window(ts, '5123457 microseconds') AS w, count(*) AS n, kurtosis(amount) AS k FROM events GROUP BY 1, 2 HAVING count(amount) > 3

--- spark_sketches_merge_exactly
SELECT tumble(INTERVAL '5 minutes') AS w, approx_distinct(id) AS ids, approx_count_distinct(amount) AS amounts FROM events GROUP BY 1
--- spark
SELECT window(ts, '5 minutes') AS w, approx_count_distinct(id) AS ids, approx_count_distinct(amount) AS amounts FROM events GROUP BY 1
