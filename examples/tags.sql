-- Arrays become rows, two streams become one, and a CTE names a step on the way.
CREATE TABLE impulse WITH (connector = 'impulse', message_count = '12');

WITH tagged AS (
  SELECT counter, CASE WHEN counter % 2 = 0 THEN array('even', 'number') ELSE array('odd') END AS tags
  FROM impulse
)
SELECT counter, tag FROM tagged CROSS JOIN UNNEST(tags) AS t(tag) WHERE counter < 6
UNION ALL
SELECT counter, 'large' FROM tagged WHERE counter >= 6;
