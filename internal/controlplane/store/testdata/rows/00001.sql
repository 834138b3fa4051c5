INSERT INTO tokens (id, name, hash, labels, max_uses, uses, created_at, expires_at, revoked_at, last_used_at, last_used_by)
  VALUES ('t1', 'fleet', 'hash', '{"region":"eu"}', 5, 1, 1763000000000000, 0, 0, 1763000001000000, 'a1');
INSERT INTO agents (id, name, cluster_uid, labels, state, key_print, previous_key_print, token_id, agent_version, runner_api_version,
    kubernetes_version, distribution, provider, capacity, edge_address, sequence, registered_at, last_seen, revoked_at)
  VALUES ('a1', 'shop', 'uid-1', '{"zone":"a"}', 'online', 'k2', 'k1', 't1', '1.0', 'v1', 'v1.30', 'k3s', 'bare', '{"nodes":3}', 'edge:1', 2, 1763000001000000, 1763000002000000, 0),
         ('a2', 'shop', 'uid-2', 'null', 'revoked', 'k3', '', 't1', '1.0', 'v1', '', '', '', '{"nodes":1}', 'edge:1', 1, 1763000001000000, 1763000002000000, 1763000003000000);
INSERT INTO runners (name, serial, created_at, expires_at) VALUES ('ci', '02', 1763000000000000, 1863000000000000);
INSERT INTO revoked_certificates (serial, runner, revoked_at, expires_at) VALUES ('01', 'ci', 1763000000000000, 1863000000000000);
INSERT INTO outbox (event_id, agent_id, body, at) VALUES ('e2', 'a1',
  '{"specversion":"1.0","id":"e2","source":"/controlplane","type":"agent.online","agentid":"a1","time":"2025-11-13T02:13:22Z","datacontenttype":"application/json","data":{"id":"a1","name":"shop","state":"online","endpoints":[{"address":"edge:1","serverName":"a1.agents"}]},"sequence":"2"}', 1763000002000000);
INSERT INTO received (agent_id, event_id, at) VALUES ('a1', 'theirs', 1763000002000000);
INSERT INTO timeline (event_id, agent_id, sequence, body) VALUES ('e1', 'a1', 1,
  '{"specversion":"1.0","id":"e1","source":"/controlplane","type":"agent.online","agentid":"a1","time":"2025-11-13T02:13:21Z","datacontenttype":"application/json","data":{"id":"a1","name":"shop","state":"online","endpoints":[{"address":"edge:1","serverName":"a1.agents"}]},"sequence":"1"}');
INSERT INTO settings (name, value) VALUES ('advertised', '{"api":"https://cp.example.com:8443"}');
