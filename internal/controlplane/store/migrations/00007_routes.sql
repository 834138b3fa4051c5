-- +goose Up
-- The public hosts at which the agents' Apps are served, as the agents tell them:
-- always the whole of an agent's, in its order. since is when the control plane
-- first heard of the App at that host and path. Paths may be too long for an index.
CREATE TABLE routes (
    agent_id  TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    position  BIGINT NOT NULL,
    host      TEXT   NOT NULL,
    path      TEXT   NOT NULL,
    path_type TEXT   NOT NULL,
    tls       BIGINT NOT NULL,
    namespace TEXT   NOT NULL,
    app       TEXT   NOT NULL,
    port      BIGINT NOT NULL,
    ready     BIGINT NOT NULL,
    reason    TEXT   NOT NULL,
    since     BIGINT NOT NULL,
    PRIMARY KEY (agent_id, position)
);

-- The digest of each set, so that an agent need not send what is known.
CREATE TABLE route_sets (
    agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    digest   TEXT   NOT NULL,
    omitted  BIGINT NOT NULL,
    at       BIGINT NOT NULL
);

-- +goose Down
DROP TABLE route_sets;
DROP TABLE routes;
