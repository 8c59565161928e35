CREATE TABLE impulse (counter BIGINT UNSIGNED, subtask_index BIGINT) WITH (connector = 'impulse', event_rate = '10');
SELECT counter FROM impulse;
