-- Aggregates without a window: changes, which together leave what a batch engine gives of everything.

--- updating_count
--- updating: user
SELECT user, count(*) AS n FROM events GROUP BY user
--- duckdb
SELECT user, count(*) FROM events GROUP BY user

--- updating_many_aggregates
--- updating: kind
SELECT kind, count(*) AS n, count(amount) AS amounts, sum(amount) AS total, avg(price) AS mean, min(user) AS a, max(ts) AS b,
       stddev(price) AS deviation, bool_and(ok) AS all_ok, sum(cost) AS cost
FROM events GROUP BY kind
--- duckdb
SELECT kind, count(*), count(amount), sum(amount), avg(price), min(user), max(ts), stddev_samp(price), bool_and(ok), sum(cost)
FROM events GROUP BY kind

--- updating_by_expression_and_ordinal
--- updating: class city
SELECT amount / 50 AS class, place.city AS city, count(*) AS n, max(price) AS most FROM events WHERE ok GROUP BY 1, 2
--- duckdb
SELECT amount // 50, place.city, count(*), max(price) FROM events WHERE ok GROUP BY 1, 2

--- updating_global
--- updating:
SELECT count(*) AS n, sum(amount) AS total, max(ts) AS last, count(DISTINCT user) AS users FROM events
--- duckdb
SELECT count(*), sum(amount), max(ts), count(DISTINCT user) FROM events

--- updating_distincts
--- updating: kind
SELECT kind, count(DISTINCT user) AS users, sum(DISTINCT amount) AS different, count(*) FILTER (WHERE ok) AS good FROM events GROUP BY kind
--- duckdb
SELECT kind, count(DISTINCT user), sum(DISTINCT amount), count(*) FILTER (WHERE ok) FROM events GROUP BY kind

--- updating_lists
--- updating: user
SELECT user, sort_array(array_agg(id)) AS ids, median(amount) AS middle, max_by(kind, id) AS last_kind FROM events
WHERE amount > 120 GROUP BY user
--- duckdb
SELECT user, list(id ORDER BY id), median(amount), arg_max_null(kind, id) FROM events WHERE amount > 120 GROUP BY user

--- select_distinct
--- updating
SELECT DISTINCT user, kind FROM events
--- duckdb
SELECT DISTINCT user, kind FROM events

--- select_distinct_expression
--- updating
SELECT DISTINCT amount % 5 AS rest, ok FROM events WHERE user IS NOT NULL
--- duckdb
SELECT DISTINCT amount % 5, ok FROM events WHERE user IS NOT NULL

--- distinct_of_windows
--- updating
SELECT DISTINCT user FROM (SELECT user, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2) WHERE n > 3
--- duckdb
SELECT DISTINCT user FROM (SELECT user, bucket(INTERVAL '1 minute', ts), count(*) AS n FROM events GROUP BY 1, 2) WHERE n > 3

--- distinct_of_changes
--- updating
SELECT DISTINCT n % 4 AS rest FROM (SELECT user, count(*) AS n FROM events GROUP BY user)
--- duckdb
SELECT DISTINCT n % 4 FROM (SELECT user, count(*) AS n FROM events GROUP BY user)

--- having_that_flips
--- updating: user
SELECT user, count(*) AS n FROM events GROUP BY user HAVING count(*) % 3 = 0
--- duckdb
SELECT user, count(*) FROM events GROUP BY user HAVING count(*) % 3 = 0

--- having_between
--- updating: user
SELECT user, sum(amount) AS total FROM events GROUP BY user HAVING sum(amount) % 2 = 0 AND max(price) > 10
--- duckdb
SELECT user, sum(amount) FROM events GROUP BY user HAVING sum(amount) % 2 = 0 AND max(price) > 10

--- filter_outside_that_flips
--- updating
SELECT user, total / 3 AS third FROM (SELECT user, sum(amount) AS total FROM events GROUP BY user) WHERE total % 5 < 2
--- duckdb
SELECT user, total // 3 FROM (SELECT user, sum(amount) AS total FROM events GROUP BY user) WHERE total % 5 < 2

--- count_of_counts
--- updating: n
SELECT n, count(*) AS users FROM (SELECT user, count(*) AS n FROM events GROUP BY user) GROUP BY n
--- duckdb
SELECT n, count(*) FROM (SELECT user, count(*) AS n FROM events GROUP BY user) GROUP BY n

--- sum_of_sums
--- updating: kind
SELECT kind, sum(total) AS total, count(*) AS users, avg(n) AS mean FROM (
  SELECT kind, user, sum(amount) AS total, count(*) AS n FROM events GROUP BY kind, user) GROUP BY kind
--- duckdb
SELECT kind, sum(total), count(*), avg(n) FROM (
  SELECT kind, user, sum(amount) AS total, count(*) AS n FROM events GROUP BY kind, user) GROUP BY kind

--- extremes_under_retraction
--- updating:
SELECT max(total) AS most, min(total) AS least, max(last) AS latest, min(who) AS first_user FROM (
  SELECT user AS who, sum(amount) % 100 AS total, max(ts) AS last FROM events GROUP BY user HAVING count(*) % 2 = 0)
--- duckdb
SELECT max(total), min(total), max(last), min(who) FROM (
  SELECT user AS who, sum(amount) % 100 AS total, max(ts) AS last FROM events GROUP BY user HAVING count(*) % 2 = 0)

--- extremes_by_key_under_retraction
--- updating: class
SELECT n % 3 AS class, max(total) AS most, min(user) AS who FROM (
  SELECT user, count(*) AS n, sum(amount) AS total FROM events GROUP BY user) GROUP BY 1
--- duckdb
SELECT n % 3, max(total), min(user) FROM (SELECT user, count(*) AS n, sum(amount) AS total FROM events GROUP BY user) GROUP BY 1

--- every_aggregate_under_retraction
--- updating: class
SELECT kind IS NULL AS class, count(DISTINCT n) AS counts, median(n) AS middle, sort_array(array_agg(n)) AS all_of_them,
       stddev(n) AS deviation, count(*) FILTER (WHERE n > 3) AS large, sum(DISTINCT n) AS different
FROM (SELECT kind, user, count(*) AS n FROM events GROUP BY kind, user) GROUP BY 1
--- duckdb
SELECT kind IS NULL, count(DISTINCT n), median(n), list(n ORDER BY n), stddev_samp(n), count(*) FILTER (WHERE n > 3), sum(DISTINCT n)
FROM (SELECT kind, user, count(*) AS n FROM events GROUP BY kind, user) GROUP BY 1

--- group_that_empties
--- updating: total
SELECT total, count(*) AS users FROM (SELECT user, sum(amount) % 4 AS total FROM events GROUP BY user) WHERE total IS NOT NULL GROUP BY total
--- duckdb
SELECT total, count(*) FROM (SELECT user, sum(amount) % 4 AS total FROM events GROUP BY user) WHERE total IS NOT NULL GROUP BY total

--- three_levels_of_changes
--- updating:
SELECT max(users) AS most, sum(n * users) AS altogether FROM (
  SELECT n, count(*) AS users FROM (SELECT user, count(*) AS n FROM events GROUP BY user) GROUP BY n)
--- duckdb
SELECT max(users), sum(n * users) FROM (
  SELECT n, count(*) AS users FROM (SELECT user, count(*) AS n FROM events GROUP BY user) GROUP BY n)

--- updating_keys_only
--- updating
SELECT user FROM events WHERE kind = 'buy' GROUP BY user
--- duckdb
SELECT DISTINCT user FROM events WHERE kind = 'buy'

--- updating_of_nothing
--- updating: user
SELECT user, count(*) AS n FROM events WHERE amount > 1000000 GROUP BY user
--- duckdb
SELECT user, count(*) FROM events WHERE amount > 1000000 GROUP BY user

--- updating_unnested
--- updating: tag
SELECT tag, count(*) AS n, count(DISTINCT user) AS users FROM (SELECT user, unnest(tags) AS tag FROM events) GROUP BY tag
--- duckdb
SELECT tag, count(*), count(DISTINCT user) FROM (SELECT user, unnest(tags) AS tag FROM events) GROUP BY tag

--- updating_view
--- updating
CREATE VIEW totals AS SELECT user, kind, sum(amount) AS total FROM events GROUP BY user, kind;
SELECT upper(user) AS who, kind, coalesce(total, 0) AS total FROM totals WHERE total IS NULL OR total > 50
--- duckdb
SELECT upper(user), kind, coalesce(sum(amount), 0) FROM events GROUP BY user, kind HAVING sum(amount) IS NULL OR sum(amount) > 50
