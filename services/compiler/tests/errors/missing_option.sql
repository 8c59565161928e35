CREATE TABLE t (a INT) WITH (connector = 'single_file', type = 'source');
SELECT a FROM t;
