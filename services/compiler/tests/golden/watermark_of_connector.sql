-- The event time that a connector sets, with a watermark of the user's.
CREATE TABLE nexmark (WATERMARK FOR _timestamp AS _timestamp - INTERVAL '4 seconds') WITH (connector = 'nexmark');

SELECT bid.auction AS auction, count(*) AS bids FROM nexmark GROUP BY 1, tumble(INTERVAL '10 seconds');
