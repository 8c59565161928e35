-- Windows of event time over the Nexmark generator: what is bid on most, every 2 seconds over the last 10.
CREATE TABLE nexmark WITH (connector = 'nexmark', events = '200000', event_rate = '100000');

CREATE VIEW bids AS
SELECT bid.auction AS auction, hop(INTERVAL '200 milliseconds', INTERVAL '1 second') AS window, count(*) AS bids
FROM nexmark WHERE bid IS NOT NULL
GROUP BY bid.auction, window;

SELECT window.start AS starts, window.end AS ends, auction, bids FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window ORDER BY bids DESC, auction) AS place FROM bids
) WHERE place = 1;
