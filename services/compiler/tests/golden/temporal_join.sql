CREATE TABLE orders (
  id BIGINT NOT NULL, currency TEXT, amount DOUBLE, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'orders.json', type = 'source');
CREATE TABLE rates (
  currency TEXT PRIMARY KEY, rate DOUBLE, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'rates.json', type = 'source');

SELECT o.id, o.amount * r.rate AS total FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency AND r.rate > 0 WHERE o.amount > 1;
