-- Query 4: average price for a category. The average of the winning bids of all auctions of each category.
--
-- Differs from the original: a mean is cast to BIGINT, as the original's sink has it.
-- updating

INSERT INTO result
SELECT Q.category AS id, CAST(avg(Q.final) AS BIGINT) AS final
FROM (
  SELECT max(B.price) AS final, A.category
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.id, A.category
) Q
GROUP BY Q.category;
