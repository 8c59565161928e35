-- Query 8: monitor new users. Who came and opened an auction in the same 10 seconds.

INSERT INTO result
SELECT P.id, P.name, P.starttime AS stime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM tumble(person, INTERVAL '10 seconds')
  GROUP BY id, name, window_start, window_end
) P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM tumble(auction, INTERVAL '10 seconds')
  GROUP BY seller, window_start, window_end
) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
