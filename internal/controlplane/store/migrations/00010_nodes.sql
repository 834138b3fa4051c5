-- +goose Up
-- The control planes that serve the database side by side. Each renews its lease, by
-- the database's clock; one whose lease has ended is gone, and its tunnels with it.
CREATE TABLE nodes (
    id             TEXT PRIMARY KEY,
    version        TEXT   NOT NULL,
    peer_address   TEXT   NOT NULL,
    tunnel_address TEXT   NOT NULL,
    edge_address   TEXT   NOT NULL,
    started_at     BIGINT NOT NULL,
    lease_until    BIGINT NOT NULL
);

-- Which agents have a tunnel to which of them, since when by that one's clock.
CREATE TABLE tunnels (
    node_id  TEXT   NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    agent_id TEXT   NOT NULL,
    since    BIGINT NOT NULL,
    PRIMARY KEY (node_id, agent_id)
);
CREATE INDEX tunnels_by_agent ON tunnels (agent_id);

-- +goose Down
DROP TABLE tunnels;
DROP TABLE nodes;
