CREATE TABLE impulse WITH (connector = 'impulse');
CREATE TABLE other WITH (connector = 'impulse');
CREATE VIEW v AS SELECT counter FROM other;
SELECT counter FROM impulse;
