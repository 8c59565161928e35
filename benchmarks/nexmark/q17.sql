-- Query 17: auction statistics report. How many bids each auction had a day, and at what prices.
--
-- Differs from the original: a mean is cast to BIGINT, as the original's sink has it.
-- updating

INSERT INTO result
SELECT
  auction,
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  min(price) AS min_price,
  max(price) AS max_price,
  CAST(avg(price) AS BIGINT) AS avg_price,
  sum(price) AS sum_price
FROM bid
GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd');
