CREATE TABLE clicks (
  user_id BIGINT NOT NULL, url TEXT, cost BIGINT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');
CREATE TABLE users (
  id INT NOT NULL, name TEXT, level INT, since TIMESTAMP NOT NULL, WATERMARK FOR since AS since - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'users.json', type = 'source');

SELECT c.url, u.name FROM clicks AS c JOIN users AS u ON c.user_id = u.id AND c.cost > u.level WHERE c.url IS NOT NULL;
SELECT c.url, count(*) AS n FROM clicks AS c LEFT JOIN users AS u ON c.user_id = u.id GROUP BY c.url;
