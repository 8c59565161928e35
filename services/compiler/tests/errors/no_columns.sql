CREATE TABLE t WITH (connector = 'single_file', path = 'x', type = 'source');
SELECT a FROM t;
