CREATE TABLE clicks (user_id BIGINT, url TEXT, cost BIGINT, ts TIMESTAMP NOT NULL)
WITH (connector = 'single_file', path = 'clicks.json', type = 'source');
CREATE TABLE blocked (id BIGINT, since TIMESTAMP NOT NULL)
WITH (connector = 'single_file', path = 'blocked.json', type = 'source');

SELECT url FROM clicks WHERE user_id NOT IN (SELECT id FROM blocked);
SELECT url FROM clicks AS c WHERE EXISTS (SELECT 1 FROM blocked AS b WHERE b.id = c.user_id AND b.since < c.ts);
SELECT url FROM clicks WHERE cost > (SELECT avg(cost) FROM clicks);
