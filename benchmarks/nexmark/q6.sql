-- Query 6: average selling price by seller. The mean of the winning bids of a seller's last 11 auctions, up to each.
--
-- Flink SQL has no such query: there, OVER does not take rows that change.
-- Differs from the original: of equal prices the earliest bid wins, and a mean is cast to BIGINT, as the original's sink
-- has it.
-- updating

INSERT INTO result
SELECT
  Q.seller,
  CAST(avg(Q.price) OVER (
    PARTITION BY Q.seller ORDER BY Q.dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS BIGINT) AS avg_price
FROM (
  SELECT id, seller, price, dateTime
  FROM (
    SELECT A.id, A.seller, B.price, B.dateTime,
      ROW_NUMBER() OVER (PARTITION BY A.id, A.seller ORDER BY B.price DESC, B.dateTime) AS rownum
    FROM auction AS A, bid AS B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  )
  WHERE rownum <= 1
) AS Q;
