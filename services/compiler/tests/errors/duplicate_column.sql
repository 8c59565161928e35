CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE VIEW v AS SELECT ms, user_id AS ms FROM clicks;
SELECT ms FROM v;
