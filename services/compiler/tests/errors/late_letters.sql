CREATE TABLE a (id BIGINT) WITH (connector = 'single_file', path = 'o.json', late = 'dead_letter');
CREATE TABLE b (id BIGINT) WITH (connector = 'single_file', path = 'o.json', late = 'dead_letter', dead_letter = 'nowhere');
SELECT tumble(INTERVAL '1 minute'), count(*) FROM b GROUP BY 1;
