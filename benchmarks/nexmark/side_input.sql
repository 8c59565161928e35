-- What query 13 looks up: lines of a key from 0 to 9999 and a text, with a header.
CREATE TABLE side_input (key BIGINT PRIMARY KEY, value TEXT)
WITH (connector = 'single_file', type = 'lookup', path = '${path}');
