CREATE TABLE t WITH (connector = 'impulse', event_rate = '{{ RATE }}', message_count = '{{ not a name }}');
SELECT counter FROM t;
CREATE TABLE u WITH (connector = 'impulse', event_rate = '{{ RATE }}');
SELECT counter FROM u;
