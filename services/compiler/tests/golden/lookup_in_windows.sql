CREATE TABLE clicks (user_id BIGINT, ms INT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)
  WITH (connector = 'single_file', path = 'users.csv', type = 'lookup');
SELECT u.name, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.id
GROUP BY u.name, w HAVING max(c.ms) > 3;
SELECT w.start AS began, name, n FROM (
  SELECT user_id, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM clicks GROUP BY 1, 2
) AS counts JOIN users ON users.id = user_id;
