CREATE TABLE clicks (user_id TEXT NOT NULL, ms INT, "it's" TEXT, payload JSON, attributes MAP<TEXT, TEXT>) WITH (
  connector = 'single_file', path = 'clicks.json', bad_data = 'dead_letter', dead_letter = 'bad');
CREATE TABLE bad WITH (connector = 'single_file', path = 'bad.json');

CREATE TABLE slow (user_id TEXT, ms INT, payload JSON) WITH (
  connector = 'single_file', path = 'slow.json', timestamp_format = 'unix_millis');
INSERT INTO slow SELECT user_id, ms, payload FROM clicks WHERE ms > 1000;
INSERT INTO slow (user_id) SELECT user_id FROM clicks WHERE ms IS NULL;

-- Not of the types that a query can write: encoded by the sink.
CREATE TABLE everything WITH (connector = 'single_file', path = 'everything.json') AS SELECT * FROM clicks;

CREATE TABLE copy WITH (connector = 'single_file', path = 'copy.json');
INSERT INTO copy SELECT "it's", _timestamp AS at FROM clicks;
