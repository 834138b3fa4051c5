INSERT INTO nodes (id, version, peer_address, tunnel_address, edge_address, started_at, lease_until)
  VALUES ('n1', 'v1.0.0', 'a.example.com:8445', 'a.example.com:7000', 'example.com:8444', 1763000009000000, 1763000010000000);
INSERT INTO tunnels (node_id, agent_id, since) VALUES ('n1', 'a1', 1763000009500000);
