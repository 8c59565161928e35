CREATE TABLE impulse WITH (connector = 'impulse', message_count = '1000');
CREATE VIEW minutes AS SELECT tumble(INTERVAL '1 minute') AS minute, counter % 3 AS key, count(*) AS n FROM impulse GROUP BY 1, 2;

SELECT tumble(INTERVAL '1 hour') AS hour, avg(n) FROM minutes GROUP BY 1;
SELECT minute, max(n) FROM minutes GROUP BY minute;
