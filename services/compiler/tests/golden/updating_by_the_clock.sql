CREATE TABLE clicks (user_id BIGINT, ms INT) WITH (connector = 'single_file', path = 'c.json', type = 'source');
SET updating_ttl = '1 hour';
SET updating_ttl_time = 'processing';
-- A group, a join, and the first row of each key.
SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id;
SELECT a.ms FROM clicks a JOIN clicks b ON a.user_id = b.ms;
SELECT user_id, ms FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ms) AS place FROM clicks) WHERE place = 1;
