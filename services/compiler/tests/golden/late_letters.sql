CREATE TABLE clicks (
  user_id TEXT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '1 second'
) WITH (connector = 'single_file', path = 'clicks.json', late = 'dead_letter', dead_letter = 'letters');
CREATE TABLE letters WITH (connector = 'single_file', type = 'sink', path = 'letters.json');

SELECT tumble(INTERVAL '1 minute') AS window, count(*) FROM clicks GROUP BY 1;
