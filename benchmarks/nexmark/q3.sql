-- Query 3: local item suggestion. Who sells in Oregon, Idaho or California in category 10, and in which auctions?

INSERT INTO result
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
