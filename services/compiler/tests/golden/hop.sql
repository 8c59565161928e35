CREATE TABLE nexmark WITH (connector = 'nexmark', events = '1000');

-- What is bid on most in the last 10 seconds, every 2 seconds.
WITH bids AS (
  SELECT bid.auction, hop(INTERVAL '2 seconds', INTERVAL '10 seconds') AS window, count(*) AS num
  FROM nexmark WHERE bid IS NOT NULL GROUP BY 1, 2
)
SELECT auction, window, num, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window ORDER BY num DESC, auction) AS place FROM bids
) WHERE place <= 3;
