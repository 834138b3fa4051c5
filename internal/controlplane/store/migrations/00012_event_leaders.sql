-- +goose Up
-- The replica of each agent that told of its Apps last: the Lease's UID and how often
-- it has changed hands. What comes of one before is refused.
CREATE TABLE event_leaders (
    agent_id TEXT   PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    lease    TEXT   NOT NULL,
    term     BIGINT NOT NULL
);

-- +goose Down
DROP TABLE event_leaders;
