-- Windows that overlap, meet, or leave gaps between them.

--- hop_slide_divides_width
SELECT user, hop(INTERVAL '10 seconds', INTERVAL '1 minute') AS window, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(window_start, INTERVAL '1 minute'), count(*)
FROM hopped(INTERVAL '10 seconds', INTERVAL '1 minute') GROUP BY 1, 2

--- hop_slide_does_not_divide_width
SELECT kind, hop(INTERVAL '20 seconds', INTERVAL '50 seconds') AS window, count(*) AS n, sum(amount) AS total
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(window_start, INTERVAL '50 seconds'), count(*), sum(amount)
FROM hopped(INTERVAL '20 seconds', INTERVAL '50 seconds') GROUP BY 1, 2

--- hop_without_common_divisor
SELECT hop(INTERVAL '7 seconds', INTERVAL '17 seconds') AS window, count(*) AS n FROM events GROUP BY 1
--- duckdb
SELECT span(window_start, INTERVAL '17 seconds'), count(*)
FROM hopped(INTERVAL '7 seconds', INTERVAL '17 seconds') GROUP BY 1

--- hop_with_gaps_between
SELECT user, hop(INTERVAL '1 minute', INTERVAL '25 seconds') AS window, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(window_start, INTERVAL '25 seconds'), count(*)
FROM hopped(INTERVAL '1 minute', INTERVAL '25 seconds') GROUP BY 1, 2

--- hop_slide_equals_width
SELECT kind, hop(INTERVAL '30 seconds', INTERVAL '30 seconds') AS window, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '30 seconds', ts), INTERVAL '30 seconds'), count(*) FROM events GROUP BY 1, 2

--- hop_moments
SELECT hop(INTERVAL '15 seconds', INTERVAL '1 minute') AS window, avg(price) AS mean, stddev(price) AS deviation,
       var_pop(price) AS variance, min(ts) AS first, max(user) AS last_user
FROM events GROUP BY 1
--- duckdb
SELECT span(window_start, INTERVAL '1 minute'), avg(price), stddev_samp(price), var_pop(price), min(ts), max(user)
FROM hopped(INTERVAL '15 seconds', INTERVAL '1 minute') GROUP BY 1

--- hop_count_distinct
SELECT kind, hop(INTERVAL '30 seconds', INTERVAL '2 minutes') AS window, count(DISTINCT user) AS users,
       sum(DISTINCT amount) AS different, count(*) AS n
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(window_start, INTERVAL '2 minutes'), count(DISTINCT user), sum(DISTINCT amount), count(*)
FROM hopped(INTERVAL '30 seconds', INTERVAL '2 minutes') GROUP BY 1, 2

--- hop_median_and_arrays
SELECT hop(INTERVAL '10 seconds', INTERVAL '25 seconds') AS window, median(amount) AS middle,
       sort_array(array_agg(id)) AS ids
FROM events GROUP BY 1
--- duckdb
SELECT span(window_start, INTERVAL '25 seconds'), median(amount), list(id ORDER BY id)
FROM hopped(INTERVAL '10 seconds', INTERVAL '25 seconds') GROUP BY 1

--- hop_having
SELECT user, hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS window, sum(amount) AS total FROM events
GROUP BY 1, 2 HAVING sum(amount) > 100 AND count(*) >= 2
--- duckdb
SELECT user, span(window_start, INTERVAL '1 minute'), sum(amount) FROM hopped(INTERVAL '20 seconds', INTERVAL '1 minute')
GROUP BY 1, 2 HAVING sum(amount) > 100 AND count(*) >= 2

--- hop_start_and_end
SELECT window.start AS began, window.end AS ended, n FROM (
  SELECT hop(INTERVAL '1 second', INTERVAL '3 seconds') AS window, count(*) AS n FROM events WHERE kind = 'buy' GROUP BY 1)
--- duckdb
SELECT window_start, window_end, count(*) FROM hopped(INTERVAL '1 second', INTERVAL '3 seconds')
WHERE kind = 'buy' GROUP BY 1, 2

--- hop_before_1970
SELECT hop(INTERVAL '20 seconds', INTERVAL '70 seconds') AS window, count(*) AS n FROM ancient GROUP BY 1
--- duckdb
SELECT span(s, INTERVAL '70 seconds'), count(*)
FROM (SELECT *, bucket(INTERVAL '20 seconds', ts) - k * INTERVAL '20 seconds' AS s FROM ancient, range(4) AS r(k))
WHERE s + INTERVAL '70 seconds' > ts GROUP BY 1
