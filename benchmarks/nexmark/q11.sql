-- Query 11: user sessions. How many bids a bidder made in each session, which 10 seconds without any end.

INSERT INTO result
SELECT bidder, bid_count, window.start AS starttime, window.end AS endtime
FROM (
  SELECT bidder, count(*) AS bid_count, session(INTERVAL '10 seconds') AS window
  FROM bid
  GROUP BY bidder, window
);
