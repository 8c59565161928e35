-- update: max_by instead of ROW_NUMBER, which streams do not have
SELECT auction, bidder, last.price, last.channel, last.url, last.dateTime, last.extra
FROM (
  SELECT auction, bidder, max_by(struct(price, channel, url, dateTime, extra), dateTime) AS last
  FROM bid GROUP BY auction, bidder
)
