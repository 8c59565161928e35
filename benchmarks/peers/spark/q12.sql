-- append
SELECT bidder, count(*), window.start, window.end
FROM bid GROUP BY bidder, window(dateTime, '10 seconds')
