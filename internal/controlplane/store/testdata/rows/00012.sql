INSERT INTO event_leaders (agent_id, lease, term) VALUES ('a1', 'l1', 3);
