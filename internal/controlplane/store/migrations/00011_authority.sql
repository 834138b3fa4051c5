-- +goose Up
-- The certificate authority of control planes that share one, encrypted with a key
-- that is not in here. There is one row at most.
CREATE TABLE authority (
    name    TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    sealed  TEXT   NOT NULL
);

-- +goose Down
DROP TABLE authority;
