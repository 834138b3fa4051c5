-- +goose Up
-- What is known of whom each agent trusts: the SHA-256 of the CA bundle that it
-- reported last, and the key ID of the CA that issued the certificate it used.
CREATE TABLE agent_trust (
    agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    bundle   TEXT NOT NULL,
    issuer   TEXT NOT NULL
);

-- The same of Runners, and the fingerprint of the key of the certificate with
-- that serial number: a CA that is gone cannot vouch for it any more.
CREATE TABLE runner_trust (
    runner    TEXT PRIMARY KEY REFERENCES runners (name) ON DELETE CASCADE,
    serial    TEXT NOT NULL,
    key_print TEXT NOT NULL,
    issuer    TEXT NOT NULL
);

-- +goose Down
DROP TABLE runner_trust;
DROP TABLE agent_trust;
