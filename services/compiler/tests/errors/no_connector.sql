CREATE TABLE t (a INT) WITH (path = 'x');
SELECT a FROM t;
