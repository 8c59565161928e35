CREATE TABLE clicks (user_id BIGINT, ms INT) WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)
  WITH (connector = 'single_file', path = 'users.csv', type = 'lookup');
SELECT u.name, t.n FROM (SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id) t
LEFT JOIN users u ON u.id = t.user_id;
