-- SET belongs to its pipeline. A memory table is written by some statements and read by others.
SET parallelism = 2;

CREATE TABLE impulse WITH (connector = 'impulse', message_count = '100000');

CREATE TABLE multiples (value BIGINT, factor INT);

INSERT INTO multiples SELECT counter, 3 FROM impulse WHERE counter % 30000 = 0;
INSERT INTO multiples SELECT counter, 7 FROM impulse WHERE counter % 35000 = 0;

SELECT value, factor, value / factor AS quotient FROM multiples;
