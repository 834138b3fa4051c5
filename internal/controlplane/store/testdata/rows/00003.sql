INSERT INTO releases (id, version, manifest, signature, url, agents, labels, offered_at)
  VALUES ('r1', 'v1.2.3', 'manifest', 'signature', 'https://releases.example.com', '["a1"]', '{"zone":"a"}', 1763000004000000);
UPDATE agents SET self_update = '{"state":"done","to":"v1.2.3"}' WHERE id = 'a1';
