CREATE TABLE clicks (user_id INT, url TEXT, geo STRUCT<city TEXT, zone INT>, ts TIMESTAMP NOT NULL,
  WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
  WITH (connector = 'single_file', path = 'c.json', type = 'source');
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL, plan JSON, score DOUBLE)
  WITH (connector = 'postgres', url = 'postgresql://me:{{ PASSWORD }}@db/shop', type = 'lookup', cache_ttl = '5m');
SELECT c.url, geo.city, u.name AS who, plan FROM clicks AS c JOIN users u ON c.user_id = u.id WHERE u.score > 0.5;
