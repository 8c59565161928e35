CREATE TABLE impulse WITH (connector = 'impulse');
SELECT _timestamp AT TIME ZONE 'Europe/Berlin' AS berlin FROM impulse;
