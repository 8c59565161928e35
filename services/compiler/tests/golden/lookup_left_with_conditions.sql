CREATE TABLE clicks (user_id BIGINT, url TEXT) WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL, score DOUBLE)
  WITH (connector = 'redis', url = 'redis://cache', prefix = 'users:', type = 'lookup');
SELECT * FROM clicks LEFT JOIN users ON (users.id = clicks.user_id + 1) AND users.score > 1 AND url LIKE 'http%';
