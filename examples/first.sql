-- A first query: a counter as a stream, filtered, printed. Run it with: penstock run examples/first.sql
CREATE TABLE impulse WITH (
  connector = 'impulse',
  event_rate = '10000',
  message_count = '20000'
);

SELECT counter, counter * counter AS square
FROM impulse
WHERE counter % 2000 = 0;
