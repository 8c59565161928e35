-- Query 7: highest bid. The bids with the highest price of each 10 seconds.

INSERT INTO result
SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra
FROM bid B
JOIN (
  SELECT max(price) AS maxprice, window_end AS dateTime
  FROM tumble(bid, INTERVAL '10 seconds')
  GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10 seconds' AND B1.dateTime;
