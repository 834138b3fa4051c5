INSERT INTO webhooks (name, url, types, agents, allow_http, allow_private, secret, previous_secret, previous_until, created_at, disabled_at, reason)
  VALUES ('pager', 'https://pager.example.com/hook', '["app.failed"]', 'zone=a', 0, 0, 'whsec_c2VjcmV0', '', 0, 1763000009000000, 0, '');
INSERT INTO deliveries (webhook, event_id, agent_id, sequence, type, body, state, attempts, created_at, tried_at, next_at, status, error)
  VALUES ('pager', 'e2', 'a1', 2, 'agent.online', '{}', 'pending', 1, 1763000009000000, 1763000009000000, 1763000019000000, 503, 'it answered 503');
UPDATE timeline SET type = 'agent.online', at = 1763000001000000 WHERE event_id = 'e1';
