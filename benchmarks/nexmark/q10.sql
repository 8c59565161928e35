-- Query 10: log to the file system. All bids, with the day and the minute by which they are filed.

INSERT INTO result
SELECT
  auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS dt, date_format(dateTime, 'HH:mm') AS hm
FROM bid;
