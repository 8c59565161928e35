CREATE TABLE t WITH (connector = 'impulse', event_rate = 'fast');
SELECT counter FROM t;
