CREATE TABLE orders (
  id BIGINT NOT NULL, price BIGINT, placed TIMESTAMP NOT NULL, WATERMARK FOR placed AS placed - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'orders.json', type = 'source');
CREATE TABLE payments (
  order_id BIGINT NOT NULL, paid TIMESTAMP NOT NULL, WATERMARK FOR paid AS paid - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'payments.json', type = 'source');

SELECT o.id, p.at FROM orders AS o JOIN (SELECT order_id, paid AS at FROM payments) AS p
ON o.id = p.order_id AND p.at BETWEEN o.placed - INTERVAL '1 second' AND o.placed + INTERVAL '1 hour';
