-- +goose Up
-- Portable between SQLite and PostgreSQL: times are microseconds since 1970
-- (0 is never), lists and objects are JSON in text.
CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    name         TEXT   NOT NULL,
    hash         TEXT   NOT NULL,
    labels       TEXT   NOT NULL,
    max_uses     BIGINT NOT NULL,
    uses         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    revoked_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    last_used_by TEXT   NOT NULL
);

CREATE TABLE agents (
    id                 TEXT PRIMARY KEY,
    name               TEXT   NOT NULL,
    cluster_uid        TEXT   NOT NULL UNIQUE,
    labels             TEXT   NOT NULL,
    state              TEXT   NOT NULL,
    key_print          TEXT   NOT NULL,
    previous_key_print TEXT   NOT NULL,
    token_id           TEXT   NOT NULL,
    agent_version      TEXT   NOT NULL,
    runner_api_version TEXT   NOT NULL,
    kubernetes_version TEXT   NOT NULL,
    distribution       TEXT   NOT NULL,
    provider           TEXT   NOT NULL,
    capacity           TEXT   NOT NULL,
    edge_address       TEXT   NOT NULL,
    sequence           BIGINT NOT NULL,
    registered_at      BIGINT NOT NULL,
    last_seen          BIGINT NOT NULL,
    revoked_at         BIGINT NOT NULL
);

-- The name of a revoked agent is free again.
CREATE UNIQUE INDEX agents_name ON agents (name) WHERE revoked_at = 0;

CREATE TABLE runners (
    name       TEXT PRIMARY KEY,
    serial     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- Runner certificates that are refused though they have not expired.
CREATE TABLE revoked_certificates (
    serial     TEXT PRIMARY KEY,
    runner     TEXT   NOT NULL,
    revoked_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- What is to be announced, in the order in which it happened. No foreign key: the
-- announcement that an agent was removed outlives the agent.
CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT   NOT NULL UNIQUE,
    agent_id TEXT   NOT NULL,
    body     TEXT   NOT NULL,
    at       BIGINT NOT NULL
);

-- The agents' own event IDs, so that an event that is sent again is announced once.
CREATE TABLE received (
    agent_id TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    event_id TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, event_id)
);
CREATE INDEX received_at ON received (at);

CREATE TABLE timeline (
    event_id TEXT PRIMARY KEY,
    agent_id TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    sequence BIGINT NOT NULL,
    body     TEXT   NOT NULL
);
CREATE INDEX timeline_agent ON timeline (agent_id, sequence);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- +goose Down
DROP TABLE settings;
DROP TABLE timeline;
DROP TABLE received;
DROP TABLE outbox;
DROP TABLE revoked_certificates;
DROP TABLE runners;
DROP TABLE agents;
DROP TABLE tokens;
