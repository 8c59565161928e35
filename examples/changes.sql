-- Groups without a window: the result of each key, taken back and given anew when it changes.
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '2000', message_count = '10000');

SELECT counter % 4 AS key, count(*) AS events, max(counter) AS latest FROM impulse GROUP BY counter % 4;
