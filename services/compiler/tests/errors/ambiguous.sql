CREATE TABLE t (a TEXT[], b INT) WITH (connector = 'single_file', path = 'x');
SELECT b FROM t, UNNEST(a) AS u(b);
