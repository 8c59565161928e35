CREATE TABLE t (a TEXT) WITH (connector = 'single_file', path = '/data/{{ TENANT }}/a.json', type = 'source');
SELECT a FROM t;
