CREATE TABLE clicks (id BIGINT, user_id BIGINT, tags TEXT[], at TIMESTAMP NOT NULL, WATERMARK FOR at)
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE buys (click_id BIGINT, amount INT) WITH (connector = 'single_file', path = 'b.json', type = 'source');
CREATE TABLE users (user_id BIGINT PRIMARY KEY, name TEXT NOT NULL, country TEXT)
  WITH (connector = 'single_file', path = 'users.csv', type = 'lookup');
CREATE TABLE labels (tag TEXT PRIMARY KEY, label TEXT) WITH (connector = 'redis', url = 'redis://cache', type = 'lookup');
-- After a join of streams, with what WHERE asks of one of them asked before it.
SELECT c.id, b.amount, u.name FROM clicks c JOIN buys b ON b.click_id = c.id JOIN users u ON c.user_id = u.user_id
WHERE b.amount > 1 AND u.country = 'no';
-- Before one, by USING.
SELECT user_id, name, amount FROM clicks c LEFT JOIN users u USING (user_id) JOIN buys b ON b.click_id = c.id;
-- Before and after UNNEST, listed in FROM.
SELECT * EXCLUDE (tags, user_id), u.user_id FROM clicks c, UNNEST(c.tags) AS t(word), labels l, users u
WHERE l.tag = lower(t.word) AND u.user_id = c.user_id AND u.country = l.label AND c.id > 0;
