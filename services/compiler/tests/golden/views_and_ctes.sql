CREATE TABLE clicks (
  user_id TEXT NOT NULL,
  url TEXT,
  ms INT,
  ts TIMESTAMP NOT NULL,
  tags TEXT[],
  geo STRUCT<country TEXT, city TEXT, point STRUCT<lat DOUBLE, lon DOUBLE>>,
  attributes MAP<TEXT, TEXT>,
  payload JSON
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');

CREATE VIEW slow AS SELECT user_id, url, ms FROM clicks WHERE ms > 100;
CREATE TEMPORARY VIEW slowest (who, how_long) AS SELECT user_id, ms FROM slow WHERE ms > 1000;

WITH a AS (SELECT * FROM slowest), b AS (SELECT who AS name, how_long FROM a)
SELECT name, how_long FROM b WHERE name LIKE 'x%';
