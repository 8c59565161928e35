CREATE TABLE t (a INT) WITH (connector = 'single_file', path = 'x', bad_data = 'dead_letter');
SELECT a FROM t;
CREATE TABLE u (a INT) WITH (connector = 'single_file', path = 'x', bad_data = 'dead_letter', dead_letter = 'nope');
SELECT a FROM u;
