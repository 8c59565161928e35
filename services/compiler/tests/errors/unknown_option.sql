CREATE TABLE t WITH (connector = 'impulse', event_rat = '10');
SELECT counter FROM t;
