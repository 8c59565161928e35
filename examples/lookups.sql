-- Rows beside those that files have for their keys: who clicked, and from where. A change of a file is seen within its
-- cache_ttl; postgres and redis are looked up in the same way.
CREATE TABLE clicks (user_id TEXT NOT NULL, url TEXT, ms BIGINT)
WITH (connector = 'single_file', path = 'examples/clicks.json', type = 'source', bad_data = 'drop');

CREATE TABLE users (user_id TEXT PRIMARY KEY, name TEXT NOT NULL, country TEXT)
WITH (connector = 'single_file', path = 'examples/users.csv', type = 'lookup', cache_ttl = '10s');

CREATE TABLE countries (code TEXT PRIMARY KEY, label TEXT)
WITH (connector = 'single_file', path = 'examples/countries.csv', type = 'lookup');

SELECT u.name, c.ms, coalesce(l.label, 'somewhere') AS origin
FROM clicks c
JOIN users u ON u.user_id = c.user_id
LEFT JOIN countries l ON l.code = u.country AND c.ms > 50;
