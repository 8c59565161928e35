WITH counts AS (
  SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
  FROM bid
  GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
)
SELECT auction, num, starttime, endtime
FROM (SELECT *, rank() OVER (PARTITION BY starttime ORDER BY num DESC) AS place FROM counts)
WHERE place = 1;
