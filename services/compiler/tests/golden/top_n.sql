CREATE TABLE impulse WITH (connector = 'impulse', message_count = '1000');

SELECT key, counter FROM (
  SELECT counter % 7 AS key, counter, ROW_NUMBER() OVER (PARTITION BY counter % 7 ORDER BY counter DESC) AS place
  FROM impulse
) WHERE place <= 2;
