-- +goose Up
-- Which of its calls the leader was heard with last: one that it gave up may arrive after the next, and is
-- refused. 0 of agents that do not count.
ALTER TABLE event_leaders ADD COLUMN call BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE event_leaders DROP COLUMN call;
