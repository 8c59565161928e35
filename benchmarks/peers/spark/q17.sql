-- update
SELECT
  auction,
  DATE_FORMAT(dateTime, 'yyyy-MM-dd'),
  COUNT(*),
  COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  COUNT(*) FILTER (WHERE price >= 1000000),
  MIN(price),
  MAX(price),
  CAST(AVG(price) AS BIGINT),
  SUM(price)
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
