CREATE TABLE impulse WITH (connector = 'impulse', message_count = '1000');

SELECT counter % 7 AS key, session(INTERVAL '30 seconds') AS window, count(DISTINCT counter), max(counter)
FROM impulse GROUP BY 1, 2;
