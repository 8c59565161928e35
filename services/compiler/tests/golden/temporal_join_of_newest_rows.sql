CREATE TABLE orders (
  id BIGINT NOT NULL, currency TEXT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'orders.json', type = 'source');
CREATE TABLE quotes (
  id BIGINT NOT NULL, currency TEXT, rate DOUBLE, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'quotes.json', type = 'source');
CREATE VIEW rates AS SELECT currency, rate FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY at DESC, id DESC) AS place FROM quotes) WHERE place = 1;

SELECT o.id, r.rate FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;
