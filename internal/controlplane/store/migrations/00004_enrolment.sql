-- +goose Up
-- A token whose registrations wait for the operator, and one that was rotated:
-- its successor, and from when on only that is good.
ALTER TABLE tokens ADD COLUMN approve BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN lifetime BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN rotated_to TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN rotated_at BIGINT NOT NULL DEFAULT 0;

-- Lifetimes of before, in microseconds like all durations, 0 is for ever.
UPDATE tokens SET lifetime = expires_at - created_at WHERE expires_at <> 0;

-- Registrations that wait for the operator. They are no agents: nothing refers to
-- them, and nobody but the operator is shown them.
CREATE TABLE enrolments (
    id            TEXT PRIMARY KEY,
    token_id      TEXT   NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    key_print     TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    cluster_uid   TEXT   NOT NULL,
    address       TEXT   NOT NULL,
    request       TEXT   NOT NULL,
    state         TEXT   NOT NULL,
    reason        TEXT   NOT NULL,
    asked_at      BIGINT NOT NULL,
    last_asked_at BIGINT NOT NULL,
    decided_at    BIGINT NOT NULL
);
CREATE UNIQUE INDEX enrolments_key ON enrolments (token_id, key_print);

-- Who else was seen with an agent's identity.
ALTER TABLE agents ADD COLUMN clones TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE agents DROP COLUMN clones;
DROP TABLE enrolments;
ALTER TABLE tokens DROP COLUMN rotated_at;
ALTER TABLE tokens DROP COLUMN rotated_to;
ALTER TABLE tokens DROP COLUMN lifetime;
ALTER TABLE tokens DROP COLUMN approve;
