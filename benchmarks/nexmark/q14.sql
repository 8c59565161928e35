-- Query 14: calculation. Bids of some prices, at what time of the day they were made, and how many c are in their text.
--
-- Differs from the original: the letters are counted by functions of SQL, as peers are asked too, and not by one in Java.

INSERT INTO result
SELECT
  auction,
  bidder,
  0.908 * price AS price,
  CASE
    WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
    WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  dateTime,
  extra,
  CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
