-- A window's end is a microsecond after the event time of its results, which bounds how long rows are kept for them.
CREATE TABLE bids (
  auction BIGINT NOT NULL, price BIGINT, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at - INTERVAL '4 seconds'
) WITH (connector = 'single_file', path = 'bids.json', type = 'source');

SELECT b.auction, b.price, h.until
FROM bids AS b
JOIN (
  SELECT max(price) AS highest, window_end AS until FROM tumble(bids, INTERVAL '10 seconds') GROUP BY window_start, window_end
) AS h
ON b.price = h.highest
WHERE b.at BETWEEN h.until - INTERVAL '10 seconds' AND h.until;
