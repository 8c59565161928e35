-- Query 1: currency conversion. Each bid with its price in euros instead of dollars.

INSERT INTO result
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid;
