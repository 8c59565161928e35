SELECT DISTINCT P.id, P.name, window(P.dateTime, '10 seconds').start AS stime
FROM person P
WHERE EXISTS (
  SELECT 1 FROM auction A
  WHERE A.seller = P.id
    AND floor(unix_micros(CAST(A.dateTime AS TIMESTAMP)) / 10000000)
      = floor(unix_micros(CAST(P.dateTime AS TIMESTAMP)) / 10000000));
