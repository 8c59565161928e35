CREATE TABLE n WITH (connector = 'nexmark');
CREATE TABLE bids (a BIGINT, b BIGINT, p BIGINT) WITH (connector = 'blackhole');
CREATE VIEW v AS SELECT bid.* FROM n WHERE bid IS NOT NULL;
INSERT INTO bids SELECT x.* FROM (SELECT auction, bidder, price FROM v) x;
CREATE VIEW w AS SELECT * EXCLUDE (extra, url) FROM v;
SELECT * FROM w;
