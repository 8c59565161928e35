-- append
SELECT bidder, count(*), session_window.start, session_window.end
FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')
