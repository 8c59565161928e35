CREATE TABLE impulse WITH (connector = 'impulse');
CREATE TABLE m (n BIGINT);
SELECT n FROM m;
INSERT INTO m SELECT counter FROM impulse;
