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

SELECT user_id, unnest(tags) AS tag FROM clicks;
SELECT c.user_id, t.tag FROM clicks c CROSS JOIN UNNEST(c.tags) AS t(tag) WHERE t.tag <> '';
SELECT user_id, tag FROM clicks, UNNEST(tags) AS tag;
SELECT user_id, tag FROM clicks LEFT JOIN LATERAL UNNEST(tags) AS x(tag) ON true;
SELECT * FROM (SELECT user_id, tags FROM clicks) AS s, UNNEST(string_to_array(user_id, '.')) AS part;
