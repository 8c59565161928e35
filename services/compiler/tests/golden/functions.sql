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

SELECT
  character_length(url) AS a, strpos(url, '/') AS b, position('/' IN url) AS c,
  substring(url FROM 2 FOR 3) AS d, trim(BOTH 'x' FROM url) AS e, starts_with(url, 'http') AS f,
  array_length(tags, 1) AS g, array_to_string(tags, ',') AS h, string_to_array(url, '.') AS i,
  sha256(url) AS j, to_hex(ms) AS k, regexp_replace(url, 'A', 'b', 'gi') AS l, md5(url) AS m,
  array_has(tags, 'x') AS n, parse_url(url, 'HOST') AS o, named_struct('x', ms) AS p, overlay(url PLACING 'x' FROM 1 FOR 1) AS q,
  ceil(ms / 2.0) AS r, greatest(ms, 3) AS s, split_part(url, '/', 1) AS t, md5(url), md5(user_id), to_timestamp_millis(ms) AS u
FROM clicks;
