-- Query 13: bounded side input join. Each bid with what a file says of its auction.
--
-- Differs from the original: the file is a lookup table, whose rows count as they are when a bid comes, which the original
-- says by FOR SYSTEM_TIME AS OF.

INSERT INTO result
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM bid B
JOIN side_input S ON mod(B.auction, 10000) = S.key;
