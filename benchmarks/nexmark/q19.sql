-- Query 19: the ten highest bids of each auction.
--
-- Differs from the original: of equal prices the earliest bid comes first.
-- updating

INSERT INTO result
SELECT *
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number
  FROM bid
)
WHERE rank_number <= 10;
