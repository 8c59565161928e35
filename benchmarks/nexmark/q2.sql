-- Query 2: selection. The bids on every 123rd auction.

INSERT INTO result
SELECT auction, price FROM bid WHERE mod(auction, 123) = 0;
