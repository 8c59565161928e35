SET paralelism = 3;
SET parallelism = 'many';
SET checkpoint_interval = 'soon';
