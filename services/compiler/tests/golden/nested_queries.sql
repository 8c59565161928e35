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

SELECT a + 1 AS b FROM (SELECT x AS a FROM (SELECT ms AS x, url FROM clicks WHERE url IS NOT NULL) AS inner_one WHERE inner_one.x > 3) WHERE a < 100;
