CREATE TABLE events (
  at_ms BIGINT NOT NULL,
  value DOUBLE,
  at TIMESTAMP GENERATED ALWAYS AS (CAST(to_timestamp_millis(at_ms) AS TIMESTAMP)) STORED,
  rounded INT GENERATED ALWAYS AS (round(value)),
  line BIGINT METADATA FROM 'line',
  WATERMARK FOR at AS at - INTERVAL '5 seconds'
) WITH (connector = 'single_file', path = 'events.json', idle_time = '30 seconds', late = 'drop');

SELECT at, rounded, line FROM events;
