-- Query 0: pass through. What it costs to read an event and to write it.

INSERT INTO result
SELECT auction, bidder, price, dateTime, extra FROM bid;
