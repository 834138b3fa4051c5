INSERT INTO tokens (id, name, hash, labels, max_uses, uses, created_at, expires_at, revoked_at, last_used_at, last_used_by, approve, lifetime, rotated_to, rotated_at, kubernetes)
  VALUES ('t1', 'fleet', 'hash', '{"region":"eu"}', 5, 1, 1763000000000000, 0, 0, 1763000001000000, 'a1', 0, 0, '', 0, '{"issuer":"https://k8s","audience":"https://cp","serviceAccount":"a:b","jwks":"{}"}');
INSERT INTO agents (id, name, cluster_uid, labels, state, key_print, previous_key_print, token_id, agent_version, runner_api_version,
    kubernetes_version, distribution, provider, capacity, edge_address, sequence, registered_at, last_seen, revoked_at, self_update, components, clones)
  VALUES ('a1', 'shop', 'uid-1', '{"zone":"a"}', 'online', 'k2', 'k1', 't1', '1.0', 'v1', 'v1.30', 'k3s', 'bare', '{"nodes":3}', 'edge:1', 2, 1763000001000000, 1763000002000000, 0,
    '{"state":"done","to":"v1.2.3"}', '[{"name":"ingress","version":"2.1.0","ready":true}]', '[{"cluster":"uid-8","instance":"pod-1"}]'),
         ('a2', 'shop', 'uid-2', 'null', 'revoked', 'k3', '', 't1', '1.0', 'v1', '', '', '', '{"nodes":1}', 'edge:1', 1, 1763000001000000, 1763000002000000, 1763000003000000, 'null', 'null', 'null');
INSERT INTO runners (name, serial, created_at, expires_at, agents, ttl) VALUES ('ci', '02', 1763000000000000, 1863000000000000, 'zone=a', 86400000000);
INSERT INTO runners (name, serial, created_at, expires_at, agents, ttl, openid) VALUES ('deploy', '03', 1763000000000000, 0, '', 900000000,
  '{"issuer":"https://id.example.com","audience":"https://cp.example.com:8443","claims":{"repository":"shop/web"}}');
INSERT INTO exchanged_tokens (digest, key_print, expires_at) VALUES ('d9', 'k8', 1863000000000000);
INSERT INTO certificates (sha256, serial, role, name, issuer, not_before, not_after, issued_at, reason)
  VALUES ('ab12', '02', 'runner', 'ci', 'i1', 1763000000000000, 1863000000000000, 1763000000000000, 'runner create');
INSERT INTO revoked_certificates (serial, runner, revoked_at, expires_at) VALUES ('01', 'ci', 1763000000000000, 1863000000000000);
INSERT INTO outbox (event_id, agent_id, subject, size, type, body, at) VALUES ('e2', 'a1', 'agent', 300, 'agent.online',
  '{"specversion":"1.0","id":"e2","source":"/installations/i/agents/a1","type":"io.pipeops.agent.online","agentid":"a1","time":"2025-11-13T02:13:22Z","datacontenttype":"application/json","data":{"id":"a1","name":"shop","state":"online","endpoints":[{"address":"edge:1","serverName":"a1.agents"}]},"sequence":"00000000000000000002","previous":"00000000000000000001"}', 1763000002000000);
INSERT INTO received (agent_id, event_id, at) VALUES ('a1', 'theirs', 1763000002000000);
INSERT INTO timeline (event_id, agent_id, sequence, namespace, app, type, at, body) VALUES ('e1', 'a1', 1, '', '', 'agent.online', 1763000001000000,
  '{"specversion":"1.0","id":"e1","source":"/installations/i/agents/a1","type":"io.pipeops.agent.online","agentid":"a1","time":"2025-11-13T02:13:21Z","datacontenttype":"application/json","data":{"id":"a1","name":"shop","state":"online","endpoints":[{"address":"edge:1","serverName":"a1.agents"}]},"sequence":"00000000000000000001","previous":"00000000000000000000"}');
INSERT INTO settings (name, value) VALUES ('advertised', '{"api":"https://cp.example.com:8443"}');
INSERT INTO audit (agent_id, seq, hash, line, broken, at) VALUES ('a1', 7, 'h7', '{"seq":7}', 0, 1763000002000000), ('a1', 9, 'h9', '{"seq":9}', 1, 1763000003000000);
INSERT INTO releases (id, version, manifest, signature, url, agents, labels, offered_at, expires_at)
  VALUES ('r1', 'v1.2.3', 'manifest', 'signature', 'https://releases.example.com', '["a1"]', '{"zone":"a"}', 1763000004000000, 1793000004000000);
INSERT INTO enrolments (id, token_id, key_print, name, cluster_uid, address, request, state, reason, asked_at, last_asked_at, decided_at)
  VALUES ('w1', 't1', 'k9', 'annex', 'uid-9', '192.0.2.9', '{"name":"annex"}', 'denied', 'not ours', 1763000005000000, 1763000006000000, 1763000007000000);
UPDATE refreshes SET number = 1 WHERE agent_id = '';
INSERT INTO refreshes (agent_id, number) VALUES ('*', 1);
INSERT INTO receivers (id, agent_id, namespace, source, runner, secret, created_at, called_at, event, commit_id, look)
  VALUES ('h1', 'a1', 'shop', 'web', 'ci', 'whsec_c2VjcmV0', 1763000009000000, 1763000009500000, 'push', 'da1560886d4f094c3e6c9ef40349f7d38b5d27d7', 1);
INSERT INTO agent_trust (agent_id, bundle, issuer) VALUES ('a1', 'b1', 'i1');
INSERT INTO runner_trust (runner, serial, key_print, issuer) VALUES ('ci', '02', 'k7', 'i1');
INSERT INTO routes (agent_id, position, host, path, path_type, tls, namespace, app, service, port, ready, reason, endpoint, protocol, public_port, since)
  VALUES ('a1', 0, 'shop.example.com', '/', 'Prefix', 1, 'production', 'web', 'web', 8080, 1, '', '', 'TCP', 5432, 1763000008000000);
INSERT INTO route_sets (agent_id, digest, omitted, at, revision) VALUES ('a1', 'd1', 0, 1763000008000000, 3);
INSERT INTO host_claims (agent_id, host, proof, claimed_at, proven_at, checked_at, lost_at, next_at, reason, mode, mode_reason)
  VALUES ('a1', 'shop.example.com', 'cname', 1763000008000000, 1763000008100000, 1763000008100000, 0, 1763086408100000, '', 'direct', '');
INSERT INTO port_claims (agent_id, namespace, app, protocol, port, host, wanted, chosen, claimed_at)
  VALUES ('a1', 'production', 'web', 'TCP', 5432, 'web-1.apps.example.com', 0, 20000, 1763000008000000);
INSERT INTO host_grants (host, agent_id, granted_at) VALUES ('www.example.com', 'a1', 1763000008200000);
INSERT INTO gateway_files (name, sealed, size, modified_at) VALUES ('certificates/x/x.crt', 'c2VhbGVk', 6, 1763000008300000);
INSERT INTO gateway_locks (name, holder, until) VALUES ('issue_cert_x', 'n1', 1763000068300000);
INSERT INTO webhooks (name, url, format, types, agents, allow_http, allow_private, secret, previous_secret, previous_until, created_at, disabled_at, reason)
  VALUES ('pager', 'https://pager.example.com/hook', 'slack', '["app.failed"]', 'zone=a', 0, 0, 'whsec_c2VjcmV0', '', 0, 1763000009000000, 0, '');
INSERT INTO deliveries (webhook, event_id, agent_id, sequence, type, body, state, attempts, created_at, tried_at, next_at, status, error)
  VALUES ('pager', 'e2', 'a1', 2, 'agent.online', '{}', 'pending', 1, 1763000009000000, 1763000009000000, 1763000019000000, 503, 'it answered 503');
INSERT INTO peers (id, version, peer_address, tunnel_address, edge_address, started_at, lease_until)
  VALUES ('n1', 'v1.0.0', 'a.example.com:8445', 'a.example.com:7000', 'example.com:8444', 1763000009000000, 1763000010000000);
INSERT INTO tunnels (peer_id, agent_id, since) VALUES ('n1', 'a1', 1763000009500000);
INSERT INTO authority (name, version, sealed) VALUES ('ca', 3, '123');
INSERT INTO event_leaders (agent_id, lease, term, call) VALUES ('a1', 'l1', 3, 7);
INSERT INTO console_sessions (digest, kind, operator, serial, role, created_at, expires_at)
  VALUES ('d1', 'open', 'alice', 'a1', '', 1763000000000000, 1763000010000000);
INSERT INTO acting_operators (operator, runner, set_at) VALUES ('alice', 'r1', 1763000000000000);
INSERT INTO visitor_codes (digest, agent_id, host, challenge, person, expires_at)
  VALUES ('v1', 'a1', 'shop.example.com', 'c1', '{}', 1763000060000000);
