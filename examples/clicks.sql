-- A file of JSON lines in, another out, with a computed column, metadata columns, and the lines that cannot be read
-- (line 3 has a text where a number should be, line 5 is cut off) in a file of their own.
CREATE TABLE clicks (
  user_id TEXT NOT NULL,
  url TEXT,
  ms BIGINT,
  ts TIMESTAMP NOT NULL,
  host TEXT GENERATED ALWAYS AS (parse_url(url, 'HOST')),
  line BIGINT METADATA FROM 'line',
  WATERMARK FOR ts AS ts - INTERVAL '5 seconds'
) WITH (
  connector = 'single_file',
  path = 'examples/clicks.json',
  type = 'source',
  format = 'json',
  bad_data = 'dead_letter',
  dead_letter = 'unreadable'
);

CREATE TABLE unreadable WITH (
  connector = 'single_file', path = 'unreadable.json', type = 'sink', format = 'json'
);

CREATE TABLE quick (user_id TEXT, host TEXT, seconds DOUBLE, line BIGINT, ts TIMESTAMP) WITH (
  connector = 'single_file', path = 'quick.json', type = 'sink', format = 'json'
);

INSERT INTO quick
SELECT user_id, coalesce(host, 'none'), ms / 1000.0, line, ts
FROM clicks
WHERE ms < 100;
