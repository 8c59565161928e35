CREATE TABLE t (a INT, WATERMARK FOR a) WITH (connector = 'single_file', path = 'x');
SELECT a FROM t;
CREATE TABLE u (a INT, WATERMARK FOR b) WITH (connector = 'single_file', path = 'x');
SELECT a FROM u;
