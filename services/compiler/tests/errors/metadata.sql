CREATE TABLE t (a INT METADATA FROM 'ofset') WITH (connector = 'single_file', path = 'x');
SELECT a FROM t;
