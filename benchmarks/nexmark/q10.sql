-- Query 10: log to the file system. All bids, with the day and the minute by which they are filed.
--
-- Differs from the original: the day and the minute are columns, not folders, which the sink `filesystem` does not make.

INSERT INTO result
SELECT
  auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS dt, date_format(dateTime, 'HH:mm') AS hm
FROM bid;
