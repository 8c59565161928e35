WITH fresh AS (
  SELECT bidder, dateTime,
    CASE WHEN dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) < INTERVAL '10' SECOND
      THEN 0 ELSE 1 END AS begins
  FROM bid
), numbered AS (
  SELECT bidder, dateTime, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM fresh
)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL '10' SECOND AS endtime
FROM numbered
GROUP BY bidder, session;
