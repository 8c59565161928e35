CREATE TABLE impulse WITH (connector = 'impulse');
CREATE TABLE numbers (n BIGINT, kind TEXT NOT NULL);
INSERT INTO numbers SELECT counter, 'even' FROM impulse WHERE counter % 2 = 0;
INSERT INTO numbers (kind, n) SELECT 'odd', counter FROM impulse WHERE counter % 2 = 1;
CREATE TABLE out (n BIGINT) WITH (connector = 'blackhole');
INSERT INTO out SELECT n FROM numbers WHERE n > 5;
SELECT * FROM numbers;
