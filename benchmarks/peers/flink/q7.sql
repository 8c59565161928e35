SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra
FROM bid B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS endtime, window_time AS windowtime
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, window_time
) B1
ON B.price = B1.maxprice
WHERE B.`dateTime` BETWEEN B1.windowtime - INTERVAL '9.999' SECOND AND B1.windowtime
