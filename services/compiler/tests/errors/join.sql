CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, ts TIMESTAMP, geo STRUCT<city TEXT>)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id TEXT NOT NULL, ms INT, name TEXT) WITH (connector = 'single_file', path = 'u.json', type = 'source');
SELECT c.ms FROM clicks c JOIN users u ON c.ms > u.ms;
SELECT c.ms FROM clicks c CROSS JOIN users u;
SELECT ms FROM clicks c JOIN users u ON c.user_id = u.id;
SELECT c.nmae FROM clicks c JOIN users u ON c.user_id = u.id;
SELECT u.nmae FROM clicks c JOIN users u ON c.user_id = u.id;
SELECT c.ms FROM clicks c JOIN users u ON c.ms = u.id;
SELECT c.ms FROM clicks JOIN clicks ON clicks.ms = clicks.ms;
SELECT c.ms FROM clicks c JOIN (SELECT id FROM users) ON c.user_id = id;
SELECT c.ms FROM clicks c NATURAL JOIN users u;
SELECT c.ms FROM clicks c JOIN users u USING (id);
SELECT c.ms FROM (SELECT ms, tumble(INTERVAL '1 minute') AS w FROM clicks GROUP BY 1, 2) c
  JOIN (SELECT ms, tumble(INTERVAL '2 minutes') AS w FROM users GROUP BY 1, 2) u ON c.ms = u.ms AND c.w = u.w;
SELECT c.ms FROM clicks c JOIN users u ON c.user_id = max(u.id);
CREATE TABLE sink (ms INT) WITH (connector = 'stdout');
INSERT INTO sink SELECT c.ms FROM clicks c LEFT JOIN users u ON c.user_id = u.id;
