-- append
SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra
FROM bid B
JOIN (
  SELECT maxprice, window_time(window) AS windowtime
  FROM (SELECT max(price) AS maxprice, window FROM bid GROUP BY window(dateTime, '10 seconds'))
) B1
ON B.price = B1.maxprice
AND B.dateTime BETWEEN B1.windowtime - INTERVAL '9.999999' SECOND AND B1.windowtime + INTERVAL '0.000001' SECOND
