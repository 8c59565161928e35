-- Bids of the generated auctions, each beside its auction, and what was bid in each window beside what was offered.
CREATE TABLE nexmark WITH (connector = 'nexmark', events = '200000', event_rate = '100000');

CREATE VIEW auctions AS SELECT auction.id AS id, auction.item_name AS item FROM nexmark WHERE auction IS NOT NULL;
CREATE VIEW bids AS SELECT bid.auction AS auction, bid.price AS price FROM nexmark WHERE bid IS NOT NULL;

SELECT b.auction, a.item, b.price FROM bids AS b JOIN auctions AS a ON b.auction = a.id WHERE b.price > 90000000;

SELECT o.w.start AS began, o.n AS offered, m.n AS bids FROM
  (SELECT tumble(INTERVAL '500 milliseconds') AS w, count(*) AS n FROM auctions GROUP BY 1) AS o
  LEFT JOIN (SELECT tumble(INTERVAL '500 milliseconds') AS w, count(*) AS n FROM bids GROUP BY 1) AS m ON o.w = m.w;
