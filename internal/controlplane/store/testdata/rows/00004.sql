INSERT INTO enrolments (id, token_id, key_print, name, cluster_uid, address, request, state, reason, asked_at, last_asked_at, decided_at)
  VALUES ('w1', 't1', 'k9', 'annex', 'uid-9', '192.0.2.9', '{"name":"annex"}', 'denied', 'not ours', 1763000005000000, 1763000006000000, 1763000007000000);
UPDATE agents SET clones = '[{"cluster":"uid-8","instance":"pod-1"}]' WHERE id = 'a1';
