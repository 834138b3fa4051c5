-- +goose Up
-- The agents' audit logs, each record as the agent keeps it. A record that is
-- broken does not follow the one before it.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    seq      BIGINT NOT NULL,
    hash     TEXT   NOT NULL,
    line     TEXT   NOT NULL,
    broken   BIGINT NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX audit_agent ON audit (agent_id, id);

-- +goose Down
DROP TABLE audit;
