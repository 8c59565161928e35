-- Query 21: add channel id. Each bid with the id of its channel, by the channel's name or from the address.
--
-- Differs from the original: where an address has no id, regexp_extract gives '' and not NULL.

INSERT INTO result
SELECT
  auction, bidder, price, channel,
  CASE
    WHEN lower(channel) = 'apple' THEN '0'
    WHEN lower(channel) = 'google' THEN '1'
    WHEN lower(channel) = 'facebook' THEN '2'
    WHEN lower(channel) = 'baidu' THEN '3'
    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
  END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
  OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');
