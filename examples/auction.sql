-- The Nexmark auction site: one source, read once, feeds two queries. Prices are in dollars; q1 turns them into euros.
CREATE TABLE nexmark WITH (connector = 'nexmark', events = '50000');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel
FROM nexmark
WHERE bid IS NOT NULL;

CREATE TABLE euros (auction BIGINT, bidder BIGINT, price DOUBLE) WITH (connector = 'blackhole', type = 'sink');

INSERT INTO euros
SELECT auction, bidder, price * 0.908 FROM bids;

-- A SELECT alone is shown as it comes.
SELECT auction, price, channel FROM bids WHERE auction % 123 = 0 AND price > 5000000;
