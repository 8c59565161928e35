CREATE TABLE orders (
  id BIGINT, customer TEXT, total DECIMAL(10, 2), ts TIMESTAMP NOT NULL, PRIMARY KEY (id), WATERMARK FOR ts
) WITH (connector = 'single_file', path = 'orders.json', format = 'debezium_json', type = 'source');

SELECT customer, sum(total) AS total FROM orders GROUP BY customer;
