CREATE TABLE out (a TEXT, n INT) WITH (connector = 'blackhole');
SELECT a FROM out;
