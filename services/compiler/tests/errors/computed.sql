CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (upper(a)), c INT GENERATED ALWAYS AS (nope + 1), d INT GENERATED ALWAYS AS (b))
  WITH (connector = 'single_file', path = 'x');
SELECT a FROM t;
