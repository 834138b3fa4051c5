-- +goose Up
-- What an event is the state of (the agent, or one App): a later event of the same
-- subject says all that an earlier one said. Empty for events from before, which
-- are kept whatever comes. size is that of the body in bytes. The type is beside the
-- body so that an event can be sent without reading what is in it.
ALTER TABLE outbox ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN type TEXT NOT NULL DEFAULT '';
UPDATE outbox SET size = LENGTH(body);

-- +goose Down
ALTER TABLE outbox DROP COLUMN type;
ALTER TABLE outbox DROP COLUMN size;
ALTER TABLE outbox DROP COLUMN subject;
