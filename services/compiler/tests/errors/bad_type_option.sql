CREATE TABLE t (a INT) WITH (connector = 'blackhole', type = 'source');
SELECT a FROM t;
