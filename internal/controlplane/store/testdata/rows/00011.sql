INSERT INTO authority (name, version, sealed) VALUES ('ca', 3, '123');
