INSERT INTO routes (agent_id, position, host, path, path_type, tls, namespace, app, port, ready, reason, since)
  VALUES ('a1', 0, 'shop.example.com', '/', 'Prefix', 1, 'production', 'web', 8080, 1, '', 1763000008000000);
INSERT INTO route_sets (agent_id, digest, omitted, at) VALUES ('a1', 'd1', 0, 1763000008000000);
