CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE out (a TEXT, n INT) WITH (connector = 'blackhole');
SELECT nope FROM clicks;
SELECT ms FROM nowhere;
INSERT INTO out SELECT ms + 'x', ms FROM clicks WHERE nope;
INSERT INTO outt SELECT 1 FROM clicks;
SELECT ms FROM clicks LIMIT 1;
CREATE VIEW v AS SELECT missing FROM clicks;
SELECT missing FROM v;
