CREATE TABLE clicks (user_id BIGINT, url TEXT) WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT, country TEXT, region INT)
  WITH (connector = 'single_file', path = 'users.csv', type = 'lookup');
CREATE TABLE countries (region INT, code TEXT, label TEXT, PRIMARY KEY (code, region))
  WITH (connector = 'single_file', path = 'countries.parquet', type = 'lookup');
SELECT c.*, co.label, u.name FROM clicks c
JOIN users u ON u.id = c.user_id
LEFT JOIN countries co ON co.code = upper(u.country) AND co.region = u.region;
SELECT * EXCLUDE (region) REPLACE (upper(u.name) AS name), transform(array(c.user_id), x -> x + 1) AS more, _timestamp AS at
FROM clicks c JOIN users u ON u.id = c.user_id;
