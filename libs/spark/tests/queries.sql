-- Queries over the facts `a`, the names `b` and the empty input `e`. The line before each is its title and, after a
-- colon, what there is to know: the rows come in order, there are none, or which columns partition them.

---- Rows one by one

-- filter
SELECT id, x FROM a WHERE x > 1.5 AND g <> 'c' OR k IS NULL;

-- filter_nothing_left: empty
SELECT id FROM a WHERE x > 1000;

-- projection_arithmetic
SELECT id, x * 2 - k AS y, k % 4 AS r, -n AS minus, k DIV 3 AS q FROM a;

-- all_columns
SELECT * FROM a;

-- case_when
SELECT id, CASE WHEN x < 0 THEN 'neg' WHEN x < 3 THEN g ELSE NULL END AS c, if(ok, 1, 0) AS i FROM a;

-- null_functions
SELECT id, coalesce(k, -1) AS k, nullif(g, 'a') AS g, nvl2(x, 1, 2) AS x, s IS NULL AS z FROM a;

-- in_and_between
SELECT id FROM a WHERE k IN (1, 3, 5) AND id BETWEEN 20 AND 200 AND g NOT IN ('b', 'c');

-- decimals
SELECT id, n * 3 AS a, n / 7 AS b, round(n, 1) AS c, CAST(n AS INT) AS d, ceil(n) AS e, n % 5 AS f FROM a;

-- integer_division
SELECT id, penstock_divide(k, -4) AS i, penstock_divide(id, k + 1) AS b, penstock_divide(x, 2) AS x, penstock_divide(n,
    k + 1) AS n, penstock_divide(7, NULL) AS z, penstock_divide(INTERVAL '1' HOUR, k + 2) AS h FROM a;

-- integer_division_of_aggregates
SELECT penstock_divide(id, 50) AS bucket, penstock_divide(sum(k), count(*)) AS mean, sort_array(transform(collect_set(k
    % 2), v -> penstock_divide(v * 9, 2))) AS t FROM a GROUP BY 1 HAVING penstock_divide(max(id), 50) > 0;

-- dates
SELECT id, d + 3 AS p, datediff(d, DATE '2024-02-01') AS q, last_day(d) AS r, date_trunc('month', ts) AS t,
    dayofweek(d) AS w, add_months(d, 1) AS m FROM a;

-- timestamps_and_intervals
SELECT id, ts + INTERVAL '1 2:30' DAY TO MINUTE AS p, ts - TIMESTAMP_NTZ '2024-02-29 00:00:00' AS q, hour(ts) AS h,
    unix_micros(CAST(ts AS TIMESTAMP)) AS u, d - INTERVAL '1' MONTH AS m, INTERVAL '1' DAY * k AS i FROM a;

-- timestamps_moved_by_intervals
SELECT id, ts - INTERVAL '90' SECOND AS a, CAST(ts AS TIMESTAMP) + INTERVAL '1' DAY * k AS b, ts + INTERVAL '1' MONTH AS c,
    ts + make_dt_interval(-700000, 1, 2, -5.5) AS d, ts - make_interval(0, 1, 0, k, 1) AS e, d + INTERVAL '2' HOUR AS f
    FROM a WHERE ts + INTERVAL '1' DAY > TIMESTAMP_NTZ '2024-02-29 23:45:00';

-- time_of_day
SELECT id, CAST(ts AS TIME) AS t, CAST(ts AS TIME) > TIME '00:10:00' AS late FROM a;

-- strings
SELECT id, upper(s) AS u, substring(s, 3, 4) AS p, length(s) AS n, concat_ws('/', g, s) AS c, split(s, ' ') AS w,
    lpad(g, 3, '.') AS l, reverse(s) AS r, translate(s, 'ie', 'yo') AS t, initcap(s) AS i FROM a;

-- regex
SELECT id, regexp_extract(s, '(\\d+) (\\w+)', 1) AS e, regexp_replace(s, '[aeiou]', '*') AS r, s RLIKE '^item-1' AS
    m, s LIKE '%Größe _' AS l FROM a;

-- json
SELECT id, to_json(st) AS j, get_json_object(to_json(named_struct('a', tags)), '$.a[0]') AS g, from_json('{"p": 5}',
    'p INT').p + k AS p FROM a;

-- hashes
SELECT id, md5(s) AS m, xxhash64(k, g) AS x, hash(st) AS h, crc32(s) AS c FROM a;

---- Aggregates

-- count_and_sum
SELECT g, count(*) AS c, count(x) AS cx, sum(k) AS s, sum(n) AS n, avg(x) AS a, avg(n) AS an FROM a GROUP BY g;

-- min_max
SELECT g, min(s) AS s, max(ts) AS t, min(d) AS d, max(n) AS n, max(st) AS st, min(ok) AS ok FROM a GROUP BY g;

-- count_distinct
SELECT g, count(DISTINCT k) AS k, count(DISTINCT s, ok) AS s, sum(DISTINCT k) AS d FROM a GROUP BY g;

-- statistics
SELECT g, stddev_samp(x) AS s, var_pop(x) AS v, corr(x, k) AS c, covar_samp(x, k) AS o, skewness(x) AS w,
    regr_slope(x, k) AS r FROM a GROUP BY g;

-- approx_count_distinct
SELECT ok, approx_count_distinct(s) AS s, approx_count_distinct(id) AS i FROM a GROUP BY ok;

-- percentiles
SELECT g, percentile(x, 0.3) AS p, percentile_approx(x, array(0.25, 0.75)) AS q, median(x) AS m,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY k) AS c FROM a GROUP BY g;

-- mode
SELECT g, mode() WITHIN GROUP (ORDER BY k) AS m FROM a GROUP BY g;

-- collect
SELECT g, sort_array(collect_list(k)) AS l, sort_array(collect_set(s)) AS s FROM a GROUP BY g;

-- first_last
SELECT k, first(j) AS f, last(j) AS l, any_value(j) AS a, first(t, true) AS t FROM (SELECT k, k * 2 AS j, CASE WHEN
    ok THEN k END AS t FROM a) GROUP BY k;

-- booleans
SELECT g, bool_and(ok) AS a, bool_or(ok) AS o, every(x > -5) AS e, count_if(ok) AS c FROM a GROUP BY g;

-- max_by
SELECT g, max_by(s, id) AS a, min_by(st, id) AS i, max_by(k, struct(x, id)) AS m FROM a GROUP BY g;

-- listagg
SELECT g, listagg(DISTINCT s, '|') WITHIN GROUP (ORDER BY s) AS l FROM a GROUP BY g;

-- bits
SELECT g, bit_and(k) AS a, bit_or(k) AS o, bit_xor(k) AS x FROM a GROUP BY g;

-- filter_clause
SELECT g, count(*) FILTER (WHERE ok) AS c, sum(x) FILTER (WHERE k > 3) AS s FROM a GROUP BY g;

-- having
SELECT k, sum(x) AS s FROM a GROUP BY k HAVING count(*) > 15 AND sum(x) > 0;

-- grouping_sets
SELECT g, ok, grouping_id() AS i, count(*) AS c FROM a GROUP BY GROUPING SETS ((g, ok), (g), ());

-- rollup
SELECT g, ok, sum(x) AS s FROM a GROUP BY ROLLUP (g, ok);

-- cube
SELECT g, ok, grouping(g) AS r, avg(n) AS s FROM a GROUP BY CUBE (g, ok);

-- group_by_expression
SELECT date_trunc('hour', ts) AS h, k % 3 AS r, count(*) AS c FROM a GROUP BY ALL;

-- global
SELECT count(*) AS c, sum(x) AS s, max(s) AS m, count(DISTINCT g) AS d FROM a;

-- global_over_nothing
SELECT count(*) AS c, sum(x) AS s, max(s) AS m, sort_array(collect_list(k)) AS l FROM e;

-- groups_of_nothing: empty
SELECT g, count(*) AS c FROM e GROUP BY g;

-- nested_aggregates
SELECT max(c) AS m, avg(s) AS a FROM (SELECT g, count(*) AS c, sum(x) AS s FROM a GROUP BY g);

-- tumbling_window
SELECT w.start AS f, w.end AS t, c FROM (SELECT window(ts, '10 minutes') AS w, count(*) AS c FROM a GROUP BY 1);

-- hopping_window
SELECT window(ts, '10 minutes', '5 minutes').start AS f, g, sum(x) AS s FROM a GROUP BY ALL;

-- pivot
SELECT * FROM (SELECT g, ok, x FROM a) PIVOT (sum(x) FOR ok IN (true AS yes, false AS no));

---- Joins

-- inner
SELECT a.id, b.name FROM a JOIN b ON a.k = b.k;

-- inner_with_condition
SELECT a.id, b.name FROM a JOIN b ON a.k = b.k AND a.x > b.w;

-- left
SELECT a.id, b.name FROM a LEFT JOIN b ON a.k = b.k AND b.w > 3;

-- right
SELECT a.id, b.name FROM a RIGHT JOIN b ON a.k = b.k AND a.x < 0;

-- full
SELECT a.id, b.name, b.k FROM a FULL JOIN b ON a.id = b.lo;

-- semi
SELECT id, k FROM a LEFT SEMI JOIN b ON a.k = b.k AND b.w > 6;

-- anti
SELECT id, k FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.w > 6;

-- cross
SELECT a.id, b.name FROM a CROSS JOIN b WHERE a.id < 12;

-- non_equi
SELECT a.id, b.name FROM a JOIN b ON a.id BETWEEN b.lo AND b.hi;

-- self
SELECT one.id, two.id AS other FROM a AS one JOIN a AS two ON one.id = two.id + 1 AND one.g = two.g;

-- three_way
SELECT one.id, b.name, two.g FROM a AS one JOIN b ON one.k = b.k LEFT JOIN a AS two ON two.id = b.hi;

-- using
SELECT * FROM (SELECT k, id FROM a) JOIN (SELECT k, name FROM b) USING (k);

-- natural_full_using
SELECT k, id, name FROM (SELECT k, id FROM a) FULL JOIN (SELECT k, name FROM b) USING (k);

-- null_safe
SELECT a.id, b.name FROM a JOIN b ON a.k <=> b.k;

-- inner_with_nothing: empty
SELECT a.id, e.g FROM a JOIN e ON a.id = e.id;

-- left_with_nothing
SELECT a.id, e.g FROM a LEFT JOIN e ON a.id = e.id;

-- nothing_left_join: empty
SELECT e.id, a.g FROM e LEFT JOIN a ON a.id = e.id;

-- full_with_nothing
SELECT a.id, e.g FROM e FULL JOIN a ON a.id = e.id;

-- anti_with_nothing
SELECT id FROM a LEFT ANTI JOIN e ON a.id = e.id;

-- cross_with_nothing: empty
SELECT a.id FROM a CROSS JOIN e;

-- join_of_aggregates
SELECT p.k, p.c, q.w FROM (SELECT k, count(*) AS c FROM a GROUP BY k) p JOIN (SELECT k, sum(w) AS w FROM b GROUP BY
    k) q ON p.k = q.k;

-- in_subquery
SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE w > 6);

-- exists_subquery
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.lo > a.id);

-- not_exists_subquery
SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.lo > a.id);

-- correlated_scalar_subquery
SELECT id, (SELECT max(name) FROM b WHERE b.k = a.k) AS m FROM a;

-- values
SELECT a.id, v.label FROM a JOIN VALUES (1, 'one'), (2, 'two'), (NULL, 'none') AS v(k, label) ON a.k = v.k;

---- Window functions

-- row_number
SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM a;

-- rank
SELECT id, rank() OVER (PARTITION BY g ORDER BY k) AS r, dense_rank() OVER (PARTITION BY g ORDER BY k DESC) AS d,
    percent_rank() OVER (PARTITION BY g ORDER BY k) AS p FROM a;

-- lag_lead
SELECT id, lag(x) OVER w AS l, lead(s, 2, 'end') OVER w AS n, first_value(k) IGNORE NULLS OVER w AS f FROM a WINDOW
    w AS (PARTITION BY g ORDER BY id);

-- running_sum
SELECT id, sum(n) OVER (PARTITION BY g ORDER BY id) AS s, avg(x) OVER (ORDER BY id) AS a FROM a;

-- frame_by_rows
SELECT id, max(x) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS m FROM a;

-- frame_by_range
SELECT id, count(*) OVER (PARTITION BY ok ORDER BY ts RANGE BETWEEN INTERVAL '2' MINUTE PRECEDING AND CURRENT ROW)
    AS c, sum(k) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN 20 PRECEDING AND 5 PRECEDING) AS s FROM a;

-- ntile
SELECT id, ntile(4) OVER (PARTITION BY ok ORDER BY id) AS q FROM a;

-- top_of_group
SELECT * FROM (SELECT id, g, row_number() OVER (PARTITION BY g ORDER BY n DESC, id) AS r FROM a) WHERE r <= 3;

-- whole_partition
SELECT id, x - avg(x) OVER (PARTITION BY g) AS y, count(*) OVER () AS c FROM a;

---- Nested types

-- struct_fields
SELECT id, st.p AS p, st.q AS q, named_struct('x', x, 'in', named_struct('k', k)) AS n FROM a;

-- arrays
SELECT id, size(tags) AS n, array_contains(tags, 't1') AS c, tags[0] AS f, array_distinct(array(k, k, 1)) AS d,
    slice(tags, 1, 2) AS s, array_join(tags, ',', '?') AS j FROM a WHERE size(tags) > 0;

-- maps
SELECT id, m['m1'] AS v, map_keys(m) AS k, map_values(m) AS w, map_from_arrays(array('a', 'b'), array(k, 2)) AS b
    FROM a;

-- explode
SELECT id, explode(tags) AS t FROM a;

-- posexplode_outer
SELECT id, posexplode_outer(tags) AS (p, t) FROM a;

-- lateral_view
SELECT id, key, value, t FROM a LATERAL VIEW OUTER explode(m) AS key, value LATERAL VIEW explode(tags) AS t;

-- inline
SELECT id, inline(array(st, named_struct('p', 9, 'q', g))) FROM a;

-- higher_order
SELECT id, transform(tags, (t, i) -> concat(t, i)) AS t, filter(tags, t -> t > 't0') AS f, aggregate(sequence(1,
    id), 0L, (s, v) -> s + v) AS g, exists(tags, t -> t IS NULL) AS e, transform_values(m, (k, v) -> v + id) AS v,
    zip_with(tags, tags, (p, q) -> p || q) AS z FROM a;

-- group_by_struct
SELECT st, count(*) AS c FROM a GROUP BY st;

-- distinct_arrays
SELECT DISTINCT tags FROM a;

-- variant
SELECT id, variant_get(parse_json(to_json(st)), '$.p', 'int') AS p FROM a;

---- Sets, order and names

-- union_all
SELECT k, g FROM a UNION ALL SELECT k, name FROM b;

-- union
SELECT k FROM a UNION SELECT k FROM b;

-- union_with_nothing
SELECT id FROM e UNION ALL SELECT id FROM a;

-- except
SELECT k FROM b EXCEPT SELECT k FROM a;

-- except_all
SELECT k FROM a EXCEPT ALL SELECT k FROM b;

-- intersect
SELECT k FROM a INTERSECT SELECT k FROM b;

-- intersect_all
SELECT k FROM a INTERSECT ALL SELECT k FROM b;

-- distinct
SELECT DISTINCT g, ok FROM a;

-- order_by: ordered
SELECT id, n FROM a ORDER BY n DESC NULLS LAST, id;

-- order_by_limit: ordered
SELECT id, x FROM a ORDER BY x, id DESC LIMIT 17;

-- order_by_limit_offset: ordered
SELECT id, s FROM a ORDER BY s NULLS FIRST, id LIMIT 10 OFFSET 5;

-- limit_in_subquery
SELECT g, count(*) AS c FROM (SELECT * FROM a ORDER BY id LIMIT 50) GROUP BY g;

-- cte
WITH p AS (SELECT g, sum(x) AS s FROM a GROUP BY g) SELECT one.g, one.s, two.s AS t FROM p one JOIN p two ON one.g =
    two.g;

-- cte_shadows_an_input
WITH a AS (SELECT k AS z FROM b WHERE w > 5) SELECT z FROM a;

-- lateral_column_alias
SELECT id, x * 2 AS y, y + 1 AS z FROM a;

-- pipe_syntax
FROM a |> WHERE ok |> AGGREGATE sum(x) AS s GROUP BY g |> SELECT g, s;

---- Partitioned output

-- partitioned_rows: partition by k
SELECT id, k, s FROM a;

-- partitioned_groups: partition by ok g
SELECT g, ok, count(*) AS c, avg(x) AS x FROM a GROUP BY g, ok;

-- partitioned_join: partition by name ts st
SELECT b.name, a.ts, a.st FROM a JOIN b ON a.k = b.k;

-- partitioned_nothing: empty, partition by g
SELECT g FROM e;
