-- append: the counts of a window are gathered instead of joined with their maximum, which would count all bids twice
SELECT most.auction, most.num, starttime, endtime
FROM (
  SELECT window.start AS starttime, window.end AS endtime, explode(filter(counts, one -> one.num = maxn)) AS most
  FROM (
    SELECT window, max(num) AS maxn, collect_list(struct(auction, num)) AS counts
    FROM (
      SELECT window, auction, count(*) AS num
      FROM bid GROUP BY window(dateTime, '10 seconds', '2 seconds'), auction
    )
    GROUP BY window
  )
)
