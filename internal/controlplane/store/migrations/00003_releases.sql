-- +goose Up
-- Releases that are offered to agents, as they were published: the signature is
-- checked by each agent. An empty list of agents and no labels is every agent.
CREATE TABLE releases (
    id         TEXT PRIMARY KEY,
    version    TEXT   NOT NULL,
    manifest   TEXT   NOT NULL,
    signature  TEXT   NOT NULL,
    url        TEXT   NOT NULL,
    agents     TEXT   NOT NULL,
    labels     TEXT   NOT NULL,
    offered_at BIGINT NOT NULL
);

-- How an agent's update of itself stands; null for one that does not.
ALTER TABLE agents ADD COLUMN self_update TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE agents DROP COLUMN self_update;
DROP TABLE releases;
