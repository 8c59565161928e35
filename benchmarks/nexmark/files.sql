-- The tables of the queries, from folders of JSON lines. Names in quotes are those of the files; views fold them.
CREATE TABLE persons (
  id BIGINT, name TEXT, "emailAddress" TEXT, "creditCard" TEXT, city TEXT, state TEXT, "dateTime" TIMESTAMP NOT NULL,
  extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4 seconds'
) WITH (connector = 'filesystem', type = 'source', path = '${folder}/person');

CREATE TABLE auctions (
  id BIGINT, "itemName" TEXT, description TEXT, "initialBid" BIGINT, reserve BIGINT, "dateTime" TIMESTAMP NOT NULL,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4 seconds'
) WITH (connector = 'filesystem', type = 'source', path = '${folder}/auction');

CREATE TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, "dateTime" TIMESTAMP NOT NULL, extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4 seconds'
) WITH (connector = 'filesystem', type = 'source', path = '${folder}/bid');

CREATE VIEW person AS
SELECT
  id, name, "emailAddress" AS emailAddress, "creditCard" AS creditCard, city, state, "dateTime" AS dateTime, extra
FROM persons;

CREATE VIEW auction AS
SELECT
  id, "itemName" AS itemName, description, "initialBid" AS initialBid, reserve, "dateTime" AS dateTime, expires,
  seller, category, extra
FROM auctions;

CREATE VIEW bid AS SELECT auction, bidder, price, channel, url, "dateTime" AS dateTime, extra FROM bids;
