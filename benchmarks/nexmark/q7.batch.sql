WITH highest AS (
  SELECT max(price) AS maxprice, window.end AS endtime
  FROM bid
  GROUP BY window(dateTime, '10 seconds')
)
SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra
FROM bid B
JOIN highest H ON B.price = H.maxprice AND B.dateTime BETWEEN H.endtime - INTERVAL '10' SECOND AND H.endtime;
