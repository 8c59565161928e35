CREATE TABLE orders (id BIGINT, total BIGINT) WITH (connector = 'single_file', path = 'o.json', type = 'source', format = 'debezium_json');
SELECT id FROM orders;
