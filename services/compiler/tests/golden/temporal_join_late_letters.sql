CREATE TABLE orders (
  id BIGINT NOT NULL, currency TEXT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'orders.json', type = 'source', late = 'dead_letter', dead_letter = 'letters');
CREATE TABLE letters WITH (connector = 'single_file', type = 'sink', path = 'letters.json');
CREATE TABLE rates (
  currency TEXT PRIMARY KEY, rate DOUBLE, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'rates.json', type = 'source');

SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency WHERE o.id > 9;
