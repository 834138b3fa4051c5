INSERT INTO agent_trust (agent_id, bundle, issuer) VALUES ('a1', 'b1', 'i1');
INSERT INTO runner_trust (runner, serial, key_print, issuer) VALUES ('ci', '02', 'k7', 'i1');
