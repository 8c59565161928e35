SET paralelism = 3;
SET parallelism = 'many';
SET checkpoint_interval = 'soon';
SET updating_ttl_time = 'procesing';
SET updating_ttl_time = 5;
