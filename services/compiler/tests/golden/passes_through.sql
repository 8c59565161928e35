CREATE TABLE lines (a TEXT, b INT NOT NULL) WITH (connector = 'single_file', path = 'a.json', type = 'source');
CREATE TABLE copy (a TEXT, b INT) WITH (connector = 'blackhole');
INSERT INTO copy SELECT * FROM lines;
