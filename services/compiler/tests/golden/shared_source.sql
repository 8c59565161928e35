CREATE TABLE clicks (
  user_id TEXT NOT NULL,
  url TEXT,
  ms INT,
  ts TIMESTAMP NOT NULL,
  tags TEXT[],
  geo STRUCT<country TEXT, city TEXT, point STRUCT<lat DOUBLE, lon DOUBLE>>,
  attributes MAP<TEXT, TEXT>,
  payload JSON
) WITH (connector = 'single_file', path = 'clicks.json', type = 'source');

CREATE TABLE one (u TEXT) WITH (connector = 'blackhole');
CREATE TABLE two (m INT, c TEXT) WITH (connector = 'blackhole');
INSERT INTO one SELECT user_id FROM clicks;
INSERT INTO two SELECT ms, geo.city FROM clicks;
