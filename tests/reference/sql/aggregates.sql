-- What is aggregated: every kind of aggregate has to survive being cut into partial results and merged again.

--- counts
SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n, count(1) AS ones, count(amount) AS amounts, count(tags) AS tagged
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*), count(1), count(amount), count(tags)
FROM events GROUP BY 1, 2

--- sums_and_averages
SELECT kind, tumble(INTERVAL '1 minute') AS w, sum(amount) AS amounts, avg(amount) AS amount, sum(price) AS prices, avg(price) AS price
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(amount), avg(amount), sum(price), avg(price)
FROM events GROUP BY 1, 2

--- decimals
SELECT user, tumble(INTERVAL '1 minute') AS w, sum(cost) AS total, min(cost) AS least, max(cost) AS most, sum(cost * 2) AS twice
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(cost), min(cost), max(cost), sum(cost * 2)
FROM events GROUP BY 1, 2

--- decimal_average
SELECT tumble(INTERVAL '1 minute') AS w, avg(cost) AS mean, avg(cost) FILTER (WHERE ok) AS good FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), avg(cost), avg(cost) FILTER (WHERE ok) FROM events GROUP BY 1

--- extremes
SELECT kind, tumble(INTERVAL '1 minute') AS w, min(amount) AS a, max(amount) AS b, min(price) AS c, max(price) AS d,
       min(user) AS e, max(user) AS f, min(ts) AS g, max(ts) AS h, min(ok) AS i, max(ok) AS j, max(ts::DATE) AS k
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), min(amount), max(amount), min(price), max(price),
       min(user), max(user), min(ts), max(ts), min(ok), max(ok), max(ts::DATE)
FROM events GROUP BY 1, 2

--- moments
SELECT kind, tumble(INTERVAL '1 minute') AS w, stddev(price) AS a, stddev_pop(price) AS b, stddev_samp(amount) AS c,
       variance(price) AS d, var_pop(amount) AS e, var_samp(amount) AS f
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), stddev_samp(price), stddev_pop(price),
       stddev_samp(amount), var_samp(price), var_pop(amount), var_samp(amount)
FROM events GROUP BY 1, 2

--- covariances
SELECT tumble(INTERVAL '1 minute') AS w, corr(price, amount) AS a, covar_pop(price, amount) AS b, covar_samp(price, amount) AS c
FROM events GROUP BY 1 HAVING count(price + amount) > 5
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), corr(price, amount), covar_pop(price, amount),
       covar_samp(price, amount)
FROM events GROUP BY 1 HAVING count(price + amount) > 5

--- regressions
SELECT tumble(INTERVAL '1 minute') AS w, regr_slope(price, amount) AS a, regr_intercept(price, amount) AS b,
       regr_count(price, amount) AS c, regr_r2(price, amount) AS d, regr_avgx(price, amount) AS e, regr_sxy(price, amount) AS f
FROM events GROUP BY 1 HAVING count(price + amount) > 5
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), regr_slope(price, amount), regr_intercept(price, amount),
       regr_count(price, amount), regr_r2(price, amount), regr_avgx(price, amount), regr_sxy(price, amount)
FROM events GROUP BY 1 HAVING count(price + amount) > 5

--- correlation_of_few_rows
SELECT user, kind, tumble(INTERVAL '10 seconds') AS w, corr(price, amount) AS a, regr_slope(price, amount) AS b
FROM events GROUP BY 1, 2, 3
--- duckdb
SELECT user, kind, span(bucket(INTERVAL '10 seconds', ts), INTERVAL '10 seconds'),
       CASE WHEN NOT isnan(corr(price, amount)) THEN corr(price, amount) END,
       CASE WHEN NOT isnan(regr_slope(price, amount)) THEN regr_slope(price, amount) END
FROM events GROUP BY 1, 2, 3

--- booleans
SELECT user, tumble(INTERVAL '1 minute') AS w, bool_and(ok) AS a, bool_or(ok) AS b, every(amount > -30) AS c
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), bool_and(ok), bool_or(ok), bool_and(amount > -30)
FROM events GROUP BY 1, 2

--- bits
SELECT kind, tumble(INTERVAL '1 minute') AS w, bit_and(amount) AS a, bit_or(amount) AS b, bit_xor(amount) AS c
FROM events WHERE amount IS NOT NULL GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), bit_and(amount), bit_or(amount), bit_xor(amount)
FROM events WHERE amount IS NOT NULL GROUP BY 1, 2

--- count_distinct
SELECT kind, tumble(INTERVAL '1 minute') AS w, count(DISTINCT user) AS users FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(DISTINCT user) FROM events GROUP BY 1, 2

--- sum_distinct
SELECT user, tumble(INTERVAL '2 minutes') AS w, sum(DISTINCT amount % 7) AS total, avg(DISTINCT amount % 7) AS mean
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '2 minutes', ts), INTERVAL '2 minutes'), sum(DISTINCT amount % 7), avg(DISTINCT amount % 7)
FROM events GROUP BY 1, 2

--- two_distincts
SELECT tumble(INTERVAL '1 minute') AS w, count(DISTINCT user) AS users, count(DISTINCT kind) AS kinds FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(DISTINCT user), count(DISTINCT kind) FROM events GROUP BY 1

--- distincts_beside_all_else
SELECT kind, tumble(INTERVAL '1 minute') AS w, count(*) AS n, count(DISTINCT user) AS users, sum(amount) AS total,
       count(DISTINCT amount) AS amounts, count(DISTINCT user) FILTER (WHERE ok) AS good_users, avg(price) AS mean
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*), count(DISTINCT user), sum(amount),
       count(DISTINCT amount), count(DISTINCT user) FILTER (WHERE ok), avg(price)
FROM events GROUP BY 1, 2

--- distinct_of_two_columns
SELECT tumble(INTERVAL '1 minute') AS w, count(DISTINCT (user, kind)) AS pairs FROM events
WHERE user IS NOT NULL AND kind IS NOT NULL GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(DISTINCT (user, kind)) FROM events
WHERE user IS NOT NULL AND kind IS NOT NULL GROUP BY 1

--- approximate_distinct
--- approximate: ids users
SELECT tumble(INTERVAL '5 minutes') AS w, approx_distinct(id) AS ids, approx_count_distinct(user) AS users FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '5 minutes', ts), INTERVAL '5 minutes'), count(DISTINCT id), count(DISTINCT user) FROM events GROUP BY 1

--- arrays_in_order
SELECT user, tumble(INTERVAL '1 minute') AS w, array_agg(id ORDER BY id) AS ids, array_agg(kind ORDER BY id DESC) AS kinds
FROM events WHERE kind IS NOT NULL GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), list(id ORDER BY id), list(kind ORDER BY id DESC)
FROM events WHERE kind IS NOT NULL GROUP BY 1, 2

--- arrays_of_distinct_values_in_order
SELECT user, tumble(INTERVAL '1 minute') AS w, array_agg(DISTINCT kind ORDER BY kind) AS kinds
FROM events WHERE kind IS NOT NULL GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), list(DISTINCT kind ORDER BY kind)
FROM events WHERE kind IS NOT NULL GROUP BY 1, 2

--- arrays_hold_nulls_which_come_last
SELECT kind, tumble(INTERVAL '1 minute') AS w, array_agg(amount ORDER BY amount) AS amounts, array_agg(id ORDER BY amount DESC, id DESC) AS ids,
       cardinality(array_agg(amount)) AS n
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), list(amount ORDER BY amount), list(id ORDER BY amount DESC, id DESC), count(*)
FROM events GROUP BY 1, 2

--- nulls_order_last
SELECT kind, tumble(INTERVAL '1 minute') AS w, first_value(user ORDER BY CASE WHEN ok THEN id END) AS first_good,
       string_agg(user, ',' ORDER BY amount, id) AS users
FROM events GROUP BY 1, 2 HAVING bool_or(ok)
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), first(user ORDER BY CASE WHEN ok THEN id END),
       string_agg(user, ',' ORDER BY amount, id)
FROM events GROUP BY 1, 2 HAVING bool_or(ok)

--- arrays_sorted_by_spark
SELECT user, tumble(INTERVAL '1 minute') AS w, sort_array(collect_list(amount)) AS amounts, array_sort(collect_set(kind)) AS kinds
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'),
       coalesce(list(amount ORDER BY amount) FILTER (WHERE amount IS NOT NULL), []),
       coalesce(list(DISTINCT kind ORDER BY kind) FILTER (WHERE kind IS NOT NULL), [])
FROM events GROUP BY 1, 2

--- text_joined
SELECT tumble(INTERVAL '1 minute') AS w, ok, string_agg(kind, ',' ORDER BY kind) AS kinds,
       string_agg(DISTINCT user, '|' ORDER BY user) AS users
FROM events GROUP BY 1, 2
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), ok, string_agg(kind, ',' ORDER BY kind),
       string_agg(DISTINCT user, '|' ORDER BY user)
FROM events GROUP BY 1, 2

--- medians
SELECT kind, tumble(INTERVAL '1 minute') AS w, median(amount) AS a, percentile_cont(0.9) WITHIN GROUP (ORDER BY price) AS b,
       percentile(amount, 0.25) AS c
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), median(amount),
       quantile_cont(price, 0.9), quantile_cont(amount, 0.25)
FROM events GROUP BY 1, 2

--- discrete_percentiles
SELECT tumble(INTERVAL '1 minute') AS w, percentile_disc(0.5) WITHIN GROUP (ORDER BY amount) AS a FROM events
WHERE amount IS NOT NULL GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), quantile_disc(amount, 0.5) FROM events
WHERE amount IS NOT NULL GROUP BY 1

--- values_by_order
SELECT user, tumble(INTERVAL '1 minute') AS w, max_by(kind, id) AS last_kind, min_by(amount, id) AS first_amount,
       max_by(id, ts + id * INTERVAL '3 microseconds') AS latest
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), arg_max_null(kind, id), arg_min_null(amount, id),
       arg_max(id, ts + id * INTERVAL '3 microseconds')
FROM events GROUP BY 1, 2

--- first_and_last_value
SELECT kind, tumble(INTERVAL '1 minute') AS w, first_value(user ORDER BY id) AS first_user, last_value(user ORDER BY id) AS last_user
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), arg_min_null(user, id), arg_max_null(user, id)
FROM events GROUP BY 1, 2

--- filters
SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) FILTER (WHERE ok) AS good, sum(amount) FILTER (WHERE kind = 'buy') AS bought,
       max(price) FILTER (WHERE amount < 0) AS most, count(*) AS n
FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), count(*) FILTER (WHERE ok),
       sum(amount) FILTER (WHERE kind = 'buy'), max(price) FILTER (WHERE amount < 0), count(*)
FROM events GROUP BY 1, 2

--- conditional_sums
SELECT tumble(INTERVAL '1 minute') AS w, sum(CASE WHEN ok THEN amount ELSE 0 END) AS good, sum(CASE WHEN NOT ok THEN 1 END) AS bad,
       count(CASE WHEN kind = 'buy' THEN user END) AS buyers, count_if(amount > 50) AS many
FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(CASE WHEN ok THEN amount ELSE 0 END),
       sum(CASE WHEN NOT ok THEN 1 END), count(CASE WHEN kind = 'buy' THEN user END), count_if(amount > 50)
FROM events GROUP BY 1

--- expressions_over_aggregates
SELECT user || '!' AS who, tumble(INTERVAL '1 minute') AS w, sum(amount) / count(*) AS quotient, max(amount) - min(amount) AS spread,
       CASE WHEN count(*) > 5 THEN 'many' ELSE 'few' END AS class, coalesce(sum(amount), 0) + 1 AS more, round(avg(price) + 0.000001, 1) AS mean
FROM events GROUP BY user, w
--- duckdb
SELECT user || '!', span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), (sum(amount) // count(*))::BIGINT,
       max(amount) - min(amount), CASE WHEN count(*) > 5 THEN 'many' ELSE 'few' END, coalesce(sum(amount), 0) + 1, round(avg(price) + 0.000001, 1)
FROM events GROUP BY user, bucket(INTERVAL '1 minute', ts)

--- aggregates_of_expressions
SELECT tumble(INTERVAL '1 minute') AS w, sum(amount / 7) AS sevenths, sum(amount % 7) AS rests, sum(abs(amount)) AS absolute,
       max(length(user)) AS longest, sum(price * amount) AS value, max(coalesce(kind, 'zzz')) AS kind
FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(amount // 7), sum(amount % 7), sum(abs(amount)),
       max(length(user)), sum(price * amount), max(coalesce(kind, 'zzz'))
FROM events GROUP BY 1

--- nulls_only
SELECT tumble(INTERVAL '5 minutes') AS w, user, sum(amount) AS total, avg(amount) AS mean, min(kind) AS kind, count(amount) AS n,
       count(DISTINCT kind) AS kinds, stddev(price) AS deviation, bool_or(ok) AS any_ok
FROM events WHERE amount IS NULL AND kind IS NULL GROUP BY 1, 2
--- duckdb
SELECT span(bucket(INTERVAL '5 minutes', ts), INTERVAL '5 minutes'), user, sum(amount), avg(amount), min(kind), count(amount),
       count(DISTINCT kind), stddev_samp(price), bool_or(ok)
FROM events WHERE amount IS NULL AND kind IS NULL GROUP BY 1, 2

--- one_row_each
SELECT id, tumble(INTERVAL '1 minute') AS w, sum(amount) AS amount, stddev(amount) AS none, max(tags[1]) AS tag FROM events GROUP BY 1, 2
--- duckdb
SELECT id, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), sum(amount), NULL, max(tags[1]) FROM events GROUP BY 1, 2, ts

--- aggregates_of_structs_and_lists
SELECT tumble(INTERVAL '2 minutes') AS w, count(DISTINCT place.city) AS cities, max(cardinality(tags)) AS most_tags,
       max(place.zone) AS zone, sum(array_length(tags, 1)) AS tags
FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '2 minutes', ts), INTERVAL '2 minutes'), count(DISTINCT place.city), max(len(tags)), max(place.zone),
       sum(CASE WHEN len(tags) > 0 THEN len(tags) END)
FROM events GROUP BY 1
