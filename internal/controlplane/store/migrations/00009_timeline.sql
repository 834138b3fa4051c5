-- +goose Up
-- What an event of the timeline is about, so that an App's are found without reading
-- the others. namespace and app are empty for what happened to the agent itself.
ALTER TABLE timeline ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
ALTER TABLE timeline ADD COLUMN app TEXT NOT NULL DEFAULT '';
ALTER TABLE timeline ADD COLUMN type TEXT NOT NULL DEFAULT '';
ALTER TABLE timeline ADD COLUMN at BIGINT NOT NULL DEFAULT 0;
UPDATE timeline SET type = json_extract(body, '$.type'), at = 1000000 * unixepoch(json_extract(body, '$.time'));
UPDATE timeline SET namespace = json_extract(body, '$.data.namespace'), app = json_extract(body, '$.data.name')
    WHERE type LIKE 'app.%';
CREATE INDEX timeline_app ON timeline (agent_id, namespace, app, sequence);

-- Where events are sent to over HTTPS. types is a list, agents a selector of labels;
-- empty is all. The secrets are keys of HMACs, which have to be had to sign with them.
CREATE TABLE webhooks (
    name            TEXT PRIMARY KEY,
    url             TEXT   NOT NULL,
    types           TEXT   NOT NULL,
    agents          TEXT   NOT NULL,
    allow_http      BIGINT NOT NULL,
    allow_private   BIGINT NOT NULL,
    secret          TEXT   NOT NULL,
    previous_secret TEXT   NOT NULL,
    previous_until  BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    disabled_at     BIGINT NOT NULL,
    reason          TEXT   NOT NULL
);

-- What is to be sent to a webhook, and for a while what was. An agent's events are
-- sent by their sequence, one at a time; body is empty once one is done with. status
-- is HTTP's of the last attempt, 0 if there was no answer.
CREATE TABLE deliveries (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook    TEXT   NOT NULL REFERENCES webhooks (name) ON DELETE CASCADE,
    event_id   TEXT   NOT NULL,
    agent_id   TEXT   NOT NULL,
    sequence   BIGINT NOT NULL,
    type       TEXT   NOT NULL,
    body       TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    attempts   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    tried_at   BIGINT NOT NULL,
    next_at    BIGINT NOT NULL,
    status     BIGINT NOT NULL,
    error      TEXT   NOT NULL
);
CREATE UNIQUE INDEX deliveries_event ON deliveries (webhook, event_id);
CREATE INDEX deliveries_pending ON deliveries (webhook, agent_id, sequence) WHERE state = 'pending';
CREATE INDEX deliveries_state ON deliveries (webhook, state, id);

-- +goose Down
DROP TABLE deliveries;
DROP TABLE webhooks;
DROP INDEX timeline_app;
ALTER TABLE timeline DROP COLUMN at;
ALTER TABLE timeline DROP COLUMN type;
ALTER TABLE timeline DROP COLUMN app;
ALTER TABLE timeline DROP COLUMN namespace;
