-- append
SELECT P.id, P.name, P.window.start
FROM (SELECT id, name, window FROM person GROUP BY window(dateTime, '10 seconds'), id, name) P
JOIN (SELECT seller, window FROM auction GROUP BY window(dateTime, '10 seconds'), seller) A
ON P.id = A.seller AND P.window = A.window
