-- +goose Up
-- Which agents a Runner may see and reach: a selector of labels, as its certificate
-- has it. Empty is all of them.
ALTER TABLE runners ADD COLUMN agents TEXT NOT NULL DEFAULT '';

-- What agents have to be told at once, by the number of the latest: '*' is for all
-- of them. The row without a name counts; whoever adds news changes it first, so
-- that numbers become visible in their order.
CREATE TABLE news (
    agent_id TEXT PRIMARY KEY,
    number   BIGINT NOT NULL
);
INSERT INTO news (agent_id, number) VALUES ('', 0);

-- +goose Down
DROP TABLE news;
ALTER TABLE runners DROP COLUMN agents;
