CREATE TABLE orders (id BIGINT NOT NULL, currency TEXT, placed TIMESTAMP, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
  WITH (connector = 'single_file', path = 'o.json', type = 'source');
CREATE TABLE quotes (currency TEXT, rate DOUBLE, at TIMESTAMP NOT NULL, WATERMARK FOR at)
  WITH (connector = 'single_file', path = 'q.json', type = 'source');
CREATE TABLE rates (bank TEXT, currency TEXT, rate DOUBLE, at TIMESTAMP NOT NULL, PRIMARY KEY (bank, currency), WATERMARK FOR at)
  WITH (connector = 'single_file', path = 'r.json', type = 'source');
CREATE TABLE banks (name TEXT PRIMARY KEY, city TEXT) WITH (connector = 'single_file', path = 'b.csv', type = 'lookup');
CREATE VIEW best AS SELECT currency, max(rate) AS rate FROM quotes GROUP BY currency;
SELECT o.id FROM orders o JOIN quotes FOR SYSTEM_TIME AS OF o.ts AS q ON o.currency = q.currency;
SELECT o.id FROM orders o JOIN best FOR SYSTEM_TIME AS OF o.placed AS b ON o.currency = b.currency;
SELECT o.id FROM orders o JOIN best FOR SYSTEM_TIME AS OF b.rate AS b ON o.currency = b.currency;
SELECT o.id FROM orders o JOIN best FOR SYSTEM_TIME AS OF o.ts - INTERVAL '1 hour' AS b ON o.currency = b.currency;
SELECT o.id FROM orders o JOIN best FOR SYSTEM_TIME BETWEEN o.ts AND o.ts AS b ON o.currency = b.currency;
SELECT o.id FROM orders o RIGHT JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.currency;
SELECT o.id FROM orders o FULL JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.currency;
SELECT o.id FROM orders o LEFT SEMI JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.currency;
SELECT o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;
SELECT o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency AND upper(r.bank) = o.currency;
SELECT o.id FROM orders o JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.id > b.rate;
SELECT o.n FROM (SELECT currency, count(*) AS n FROM orders GROUP BY currency) o
  JOIN best FOR SYSTEM_TIME AS OF o._timestamp AS b ON o.currency = b.currency;
SELECT b.rate FROM best FOR SYSTEM_TIME AS OF ts AS b;
SELECT o.id FROM orders o JOIN banks FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.name;
SELECT o.id FROM orders o JOIN (SELECT * FROM rates WHERE rate > 0) r ON o.currency = r.currency
  JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.currency;
SELECT o.id, b.rat FROM orders o JOIN best FOR SYSTEM_TIME AS OF o.ts AS b ON o.currency = b.currency;
