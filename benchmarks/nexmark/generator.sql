-- The tables of the queries, from the generator.
CREATE TABLE nexmark (WATERMARK FOR _timestamp AS _timestamp - INTERVAL '4 seconds')
WITH (connector = 'nexmark', ${options});

CREATE VIEW person AS
SELECT
  person.id AS id, person.name AS name, person.email_address AS emailAddress, person.credit_card AS creditCard,
  person.city AS city, person.state AS state, _timestamp AS dateTime, person.extra AS extra
FROM nexmark WHERE person IS NOT NULL;

CREATE VIEW auction AS
SELECT
  auction.id AS id, auction.item_name AS itemName, auction.description AS description,
  auction.initial_bid AS initialBid, auction.reserve AS reserve, _timestamp AS dateTime, auction.expires AS expires,
  auction.seller AS seller, auction.category AS category, auction.extra AS extra
FROM nexmark WHERE auction IS NOT NULL;

CREATE VIEW bid AS
SELECT
  bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel, bid.url AS url,
  _timestamp AS dateTime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;
