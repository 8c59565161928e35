CREATE TABLE orders (
  id BIGINT NOT NULL, user_id INT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'orders.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT, changed TIMESTAMP NOT NULL, WATERMARK FOR changed)
WITH (connector = 'single_file', path = 'users.json', format = 'debezium_json', type = 'source');
CREATE VIEW people AS SELECT id AS person, upper(name) AS name FROM users;
SET updating_ttl = '7 days';

SELECT o.id, p.name FROM orders AS o LEFT JOIN people FOR SYSTEM_TIME AS OF o.ts p ON o.user_id = p.person AND o.id <> 0;
