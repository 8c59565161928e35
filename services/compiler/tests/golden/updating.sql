CREATE TABLE impulse WITH (connector = 'impulse', message_count = '1000');
CREATE TABLE out (key BIGINT, n BIGINT) WITH (connector = 'single_file', type = 'sink', path = 'out.json', format = 'debezium_json');
SET updating_ttl = '1 hour';
CREATE VIEW counts AS SELECT counter % 7 AS key, count(*) AS n FROM impulse GROUP BY counter % 7 HAVING count(*) > 2;

INSERT INTO out SELECT * FROM counts;
SELECT n, count(*) AS keys FROM counts GROUP BY n;
SELECT DISTINCT counter % 5 AS rest FROM impulse;
SELECT count(*) FROM impulse;
