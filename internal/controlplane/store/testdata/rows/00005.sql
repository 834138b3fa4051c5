UPDATE runners SET agents = 'zone=a' WHERE name = 'ci';
UPDATE news SET number = 1 WHERE agent_id = '';
INSERT INTO news (agent_id, number) VALUES ('*', 1);
