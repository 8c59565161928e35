CREATE TABLE t ("userId" TEXT) WITH (connector = 'single_file', path = 'a', type = 'source');
SELECT userId FROM t;
