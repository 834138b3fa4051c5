UPDATE outbox SET subject = 'agent', size = LENGTH(body), type = 'agent.online' WHERE event_id = 'e2';
