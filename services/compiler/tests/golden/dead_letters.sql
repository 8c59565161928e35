CREATE TABLE clicks (user_id TEXT, ms INT) WITH (
  connector = 'single_file', path = 'c.json', bad_data = 'dead_letter', dead_letter = 'bad');
CREATE TABLE bad (reason TEXT, payload BYTEA, position TEXT) WITH (connector = 'blackhole');
SELECT * FROM clicks;
