-- append
SELECT auction, bidder, CAST(0.908 * price AS DOUBLE), dateTime, extra FROM bid
