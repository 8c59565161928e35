-- Orders, each at the rate that its currency had when it was placed, whichever file is read first.
CREATE TABLE orders (
  id BIGINT NOT NULL, currency TEXT, amount DOUBLE, placed TIMESTAMP NOT NULL,
  WATERMARK FOR placed AS placed - INTERVAL '1 minute'
) WITH (connector = 'single_file', path = 'examples/orders.json', type = 'source');

CREATE TABLE rates (
  currency TEXT PRIMARY KEY, rate DOUBLE, since TIMESTAMP NOT NULL, WATERMARK FOR since AS since - INTERVAL '1 minute'
) WITH (connector = 'single_file', path = 'examples/rates.json', type = 'source');

SELECT o.id, o.amount * r.rate AS euros, r.since
FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.placed AS r ON o.currency = r.currency;
