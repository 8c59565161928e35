SET parallelism = 4;
SET checkpoint_interval = '10s';
SET updating_ttl = INTERVAL '1 day';
SET allowed_lateness TO '2 minutes';
CREATE TABLE impulse WITH (connector = 'impulse');
SELECT counter FROM impulse;
