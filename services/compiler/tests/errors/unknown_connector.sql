CREATE TABLE t (a INT) WITH (connector = 'single_fil', path = 'x');
SELECT a FROM t;
