CREATE TABLE t WITH (connector = impulse);
SELECT counter FROM t;
