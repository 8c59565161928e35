CREATE TABLE impulse WITH (connector = 'impulse', message_count = '1000');
SELECT tumble(INTERVAL '1 minute') AS window, count(*) FROM impulse GROUP BY 1;
SET allowed_lateness = '30 seconds';
