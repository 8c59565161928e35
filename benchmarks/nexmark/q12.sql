-- Query 12: windows. How many bids each bidder makes in every 10 seconds.
--
-- Differs from the original: the windows are of event time, not of the time at which a bid is processed, by which no two
-- runs have the same result.

INSERT INTO result
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM tumble(bid, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end;
