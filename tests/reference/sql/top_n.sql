-- Top-N and deduplication without a window: ROW_NUMBER over rows and over changes.

--- top_of_changes
--- updating
SELECT user, kind, n FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY n DESC, user) AS place
  FROM (SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind)) WHERE place <= 2
--- duckdb
SELECT user, kind, n FROM (SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind)
QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY n DESC, user) <= 2

--- top_of_changes_with_its_place
--- updating
SELECT kind, place, user, n FROM (
  SELECT user, kind, n, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY n DESC, user DESC) AS place
  FROM (SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind)) AS ranked WHERE place <= 3
--- duckdb
SELECT kind, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY n DESC, user DESC) AS place, user, n
FROM (SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind) QUALIFY place <= 3

--- top_of_all_changes
--- updating
SELECT user, total FROM (
  SELECT user, total, ROW_NUMBER() OVER (ORDER BY total DESC NULLS LAST, user) AS place
  FROM (SELECT user, sum(amount) AS total FROM events GROUP BY user)) WHERE place <= 5
--- duckdb
SELECT user, sum(amount) AS total FROM events GROUP BY user
QUALIFY ROW_NUMBER() OVER (ORDER BY sum(amount) DESC NULLS LAST, user) <= 5

--- last_of_changes_that_shrink
--- updating
SELECT user, total FROM (
  SELECT user, total, ROW_NUMBER() OVER (ORDER BY total, user) AS place
  FROM (SELECT user, sum(amount) % 50 AS total FROM events GROUP BY user)) WHERE place = 1
--- duckdb
SELECT user, sum(amount) % 50 AS total FROM events GROUP BY user QUALIFY ROW_NUMBER() OVER (ORDER BY sum(amount) % 50, user) = 1

--- top_of_rows
--- updating
SELECT user, id, amount FROM (
  SELECT user, id, amount, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount DESC NULLS LAST, id) AS place FROM events)
WHERE place <= 3
--- duckdb
SELECT user, id, amount FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount DESC NULLS LAST, id) <= 3

--- top_of_all_rows
--- updating
SELECT id, price, place FROM (SELECT id, price, ROW_NUMBER() OVER (ORDER BY price DESC NULLS LAST, id) AS place FROM events) WHERE place <= 10
--- duckdb
SELECT id, price, ROW_NUMBER() OVER (ORDER BY price DESC NULLS LAST, id) AS number FROM events QUALIFY number <= 10

--- first_of_each_key
--- updating
SELECT user, id, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts, id) AS number FROM events) WHERE number = 1
--- duckdb
SELECT user, id, ts FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts, id) = 1

--- last_of_each_key
--- updating
SELECT user, kind, id, amount FROM (
  SELECT user, kind, id, amount, ROW_NUMBER() OVER (PARTITION BY user, kind ORDER BY ts DESC, id DESC) AS place FROM events)
WHERE place = 1 AND user <> 'bob'
--- duckdb
SELECT user, kind, id, amount FROM (
  SELECT * FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY user, kind ORDER BY ts DESC, id DESC) = 1) WHERE user <> 'bob'

--- last_of_changes
--- updating
SELECT kind, user, last FROM (
  SELECT kind, user, last, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY last DESC, user) AS place
  FROM (SELECT kind, user, max(ts) AS last FROM events GROUP BY kind, user)) WHERE place = 1
--- duckdb
SELECT kind, user, last FROM (SELECT kind, user, max(ts) AS last FROM events GROUP BY kind, user)
QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY last DESC, user) = 1

--- aggregate_of_a_top
--- updating: kind
SELECT kind, sum(n) AS total, count(*) AS users FROM (
  SELECT user, kind, n, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY n DESC, user) AS place
  FROM (SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind)) WHERE place <= 3 GROUP BY kind
--- duckdb
SELECT kind, sum(n), count(*) FROM (
  SELECT user, kind, count(*) AS n FROM events GROUP BY user, kind QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY count(*) DESC, user) <= 3)
GROUP BY kind

--- aggregate_of_deduplicated_rows
--- updating: amount
SELECT amount, count(*) AS n FROM (
  SELECT amount, ROW_NUMBER() OVER (PARTITION BY user, amount % 10 ORDER BY ts DESC, id DESC) AS place FROM events) WHERE place = 1 GROUP BY amount
--- duckdb
SELECT amount, count(*) FROM (
  SELECT amount FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY user, amount % 10 ORDER BY ts DESC, id DESC) = 1) GROUP BY amount

--- top_of_windows_over_all_time
--- updating
SELECT user, began, n FROM (
  SELECT user, w.start AS began, n, ROW_NUMBER() OVER (PARTITION BY user ORDER BY n DESC, w.start) AS place
  FROM (SELECT user, tumble(INTERVAL '30 seconds') AS w, count(*) AS n FROM events GROUP BY 1, 2)) WHERE place <= 2
--- duckdb
SELECT user, s, n FROM (SELECT user, bucket(INTERVAL '30 seconds', ts) AS s, count(*) AS n FROM events GROUP BY 1, 2)
QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY n DESC, s) <= 2
