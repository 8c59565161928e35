CREATE TABLE out (a INT) WITH (connector = 'blackhole');
INSERT INTO out VALUES (1), (2);
