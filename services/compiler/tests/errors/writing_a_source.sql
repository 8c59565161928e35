CREATE TABLE impulse WITH (connector = 'impulse');
INSERT INTO impulse SELECT counter FROM impulse;
