UPDATE event_leaders SET call = 7 WHERE agent_id = 'a1';
