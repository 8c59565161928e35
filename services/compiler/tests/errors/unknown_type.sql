CREATE TABLE t (
  a INTT,
  b TEXT,
  c DECIMAL(50, 2),
  d
) WITH (connector = 'single_file', path = 'x', type = 'source');
SELECT b FROM t;
