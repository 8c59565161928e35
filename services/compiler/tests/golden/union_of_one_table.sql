CREATE TABLE impulse WITH (connector = 'impulse');
SELECT counter FROM impulse UNION ALL SELECT counter FROM impulse;
