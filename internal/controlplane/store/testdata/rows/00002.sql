INSERT INTO audit (agent_id, seq, hash, line, broken, at) VALUES ('a1', 7, 'h7', '{"seq":7}', 0, 1763000002000000), ('a1', 9, 'h9', '{"seq":9}', 1, 1763000003000000);
