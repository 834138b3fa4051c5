-- +goose Up
-- Portable between SQLite and PostgreSQL: times are microseconds since 1970
-- (0 is never), lists and objects are JSON in text.
CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    name         TEXT   NOT NULL,
    hash         TEXT   NOT NULL,
    labels       TEXT   NOT NULL,
    max_uses     BIGINT NOT NULL,
    uses         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    revoked_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    last_used_by TEXT   NOT NULL,
    -- Its registrations wait for the operator.
    approve      BIGINT NOT NULL,
    -- In microseconds like all durations; 0 is for ever.
    lifetime     BIGINT NOT NULL,
    -- The token that came in its place, and from when on only that is good.
    rotated_to   TEXT   NOT NULL,
    rotated_at   BIGINT NOT NULL,
    -- Whose service-account tokens stand for its secret; null for a token with one.
    kubernetes   TEXT   NOT NULL DEFAULT 'null'
);

CREATE TABLE agents (
    id                 TEXT PRIMARY KEY,
    name               TEXT   NOT NULL,
    cluster_uid        TEXT   NOT NULL UNIQUE,
    labels             TEXT   NOT NULL,
    state              TEXT   NOT NULL,
    key_print          TEXT   NOT NULL,
    previous_key_print TEXT   NOT NULL,
    token_id           TEXT   NOT NULL,
    agent_version      TEXT   NOT NULL,
    runner_api_version TEXT   NOT NULL,
    kubernetes_version TEXT   NOT NULL,
    distribution       TEXT   NOT NULL,
    provider           TEXT   NOT NULL,
    capacity           TEXT   NOT NULL,
    edge_address       TEXT   NOT NULL,
    sequence           BIGINT NOT NULL,
    registered_at      BIGINT NOT NULL,
    last_seen          BIGINT NOT NULL,
    revoked_at         BIGINT NOT NULL,
    -- How an agent's update of itself stands; null for one that does not.
    self_update        TEXT   NOT NULL,
    -- How the components of its cluster are.
    components         TEXT   NOT NULL,
    -- Other clusters that were seen with the agent's identity.
    clones             TEXT   NOT NULL DEFAULT 'null',
    -- What the agent's own checks found last; null before the first.
    checks             TEXT   NOT NULL DEFAULT 'null'
);

-- The name of a revoked agent is free again.
CREATE UNIQUE INDEX agents_name ON agents (name) WHERE revoked_at = 0;
CREATE INDEX agents_revoked ON agents (revoked_at) WHERE revoked_at <> 0;

CREATE TABLE runners (
    name       TEXT PRIMARY KEY,
    serial     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- Which agents a Runner may see and reach: a selector of labels, as its certificate
    -- has it. Empty is all of them.
    agents     TEXT   NOT NULL,
    -- How long each of its certificates is valid, in microseconds.
    ttl        BIGINT NOT NULL,
    -- Whose ID tokens it gets its certificates for; null for a Runner with credentials.
    openid     TEXT   NOT NULL DEFAULT 'null'
);

-- ID tokens that were exchanged for a certificate of a Runner or an agent, until they expire, and
-- for which key. A token is good for one key.
CREATE TABLE exchanged_tokens (
    digest     TEXT PRIMARY KEY,
    key_print  TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);

-- Runner certificates that are refused though they have not expired.
CREATE TABLE revoked_certificates (
    serial     TEXT PRIMARY KEY,
    runner     TEXT   NOT NULL,
    revoked_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The log of every certificate that the CA issued. Rows are added, never changed, and deleted only
-- long after the certificate has ended. name is an agent's ID, a Runner's or CA's name, or the
-- names of a server. A serial number may come twice: a Runner keeps it when its certificate is
-- renewed.
CREATE TABLE certificates (
    sha256     TEXT PRIMARY KEY,
    serial     TEXT   NOT NULL,
    role       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    issuer     TEXT   NOT NULL,
    not_before BIGINT NOT NULL,
    not_after  BIGINT NOT NULL,
    issued_at  BIGINT NOT NULL,
    reason     TEXT   NOT NULL
);
CREATE INDEX certificates_issued ON certificates (issued_at);
CREATE INDEX certificates_holder ON certificates (role, name, issued_at);

-- What is to be announced, in the order in which it happened. No foreign key: the
-- announcement that an agent was removed outlives the agent. subject is what an event is the
-- state of (the agent, or one App): a later event of the same subject says all that an earlier
-- one said. size is that of the body in bytes. The type is beside the body so that an event can
-- be sent without reading what is in it.
CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT   NOT NULL UNIQUE,
    agent_id TEXT   NOT NULL,
    body     TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    subject  TEXT   NOT NULL,
    size     BIGINT NOT NULL,
    type     TEXT   NOT NULL
);

-- The agents' own event IDs, so that an event that is sent again is announced once.
CREATE TABLE received (
    agent_id TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    event_id TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, event_id)
);
CREATE INDEX received_at ON received (at);

-- What happened. namespace and app are empty for what happened to the agent itself.
CREATE TABLE timeline (
    event_id  TEXT PRIMARY KEY,
    agent_id  TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    sequence  BIGINT NOT NULL,
    body      TEXT   NOT NULL,
    namespace TEXT   NOT NULL,
    app       TEXT   NOT NULL,
    type      TEXT   NOT NULL,
    at        BIGINT NOT NULL
);
CREATE INDEX timeline_agent ON timeline (agent_id, sequence);
CREATE INDEX timeline_app ON timeline (agent_id, namespace, app, sequence);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- The agents' audit logs, each record as the agent keeps it. A record that is
-- broken does not follow the one before it.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    seq      BIGINT NOT NULL,
    hash     TEXT   NOT NULL,
    line     TEXT   NOT NULL,
    broken   BIGINT NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX audit_agent ON audit (agent_id, id);

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
    offered_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

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

-- The refresh requests to agents, by the number of the latest: '*' is for all agents.
-- The row without a name counts; whoever adds a request changes it first, so that
-- numbers become visible in their order.
CREATE TABLE refreshes (
    agent_id TEXT PRIMARY KEY,
    number   BIGINT NOT NULL
);
INSERT INTO refreshes (agent_id, number) VALUES ('', 0);

-- Where Git servers tell of pushes to agents' sources. Each is a Runner's, for one source. look is
-- the number of the refresh request by which its agent learns of the newest push, and 0 once it has.
-- commit_id and event are what the Git server said last.
CREATE TABLE receivers (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    namespace  TEXT   NOT NULL,
    source     TEXT   NOT NULL,
    runner     TEXT   NOT NULL,
    secret     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    called_at  BIGINT NOT NULL,
    event      TEXT   NOT NULL,
    commit_id  TEXT   NOT NULL,
    look       BIGINT NOT NULL,
    UNIQUE (agent_id, namespace, source, runner)
);
CREATE INDEX receivers_waiting ON receivers (agent_id) WHERE look > 0;

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
    -- Empty for a route of a chart, a set or a source.
    app       TEXT   NOT NULL,
    service   TEXT   NOT NULL,
    port      BIGINT NOT NULL,
    ready     BIGINT NOT NULL,
    reason    TEXT   NOT NULL,
    -- The address of the cluster's load balancer for the host; empty for none.
    endpoint  TEXT   NOT NULL,
    -- The protocol of a public port, empty for requests of HTTP, and the port that the App names, 0 for
    -- any.
    protocol    TEXT   NOT NULL DEFAULT '',
    public_port BIGINT NOT NULL DEFAULT 0,
    since     BIGINT NOT NULL,
    PRIMARY KEY (agent_id, position)
);

-- The digest of each set, so that an agent need not send what is known. at is when the agent was
-- last heard with it; routes that were not heard of for long are not served. revision changes with
-- each change of the routes and of the agent's claims to hosts.
CREATE TABLE route_sets (
    agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    digest   TEXT   NOT NULL,
    omitted  BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

-- The hosts of the agents' routes, and what proves that an agent may serve each. proof is empty
-- while there is none. lost_at is when a proof was first missed, 0 while it is there. next_at is
-- when it is looked at again. mode is how a gateway reaches a host with an endpoint, empty while that
-- was not tried, and mode_reason why not directly.
CREATE TABLE host_claims (
    agent_id   TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    host       TEXT   NOT NULL,
    proof      TEXT   NOT NULL,
    claimed_at BIGINT NOT NULL,
    proven_at  BIGINT NOT NULL,
    checked_at BIGINT NOT NULL,
    lost_at    BIGINT NOT NULL,
    next_at    BIGINT NOT NULL,
    reason     TEXT   NOT NULL,
    mode        TEXT  NOT NULL DEFAULT '',
    mode_reason TEXT  NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, host)
);
CREATE INDEX host_claims_host ON host_claims (host);
CREATE INDEX host_claims_next ON host_claims (next_at);

-- The public ports that agents want for Apps. wanted is the port that the App names, 0 for any, and
-- chosen what the control plane has chosen then, 0 while none is free.
CREATE TABLE port_claims (
    agent_id   TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    namespace  TEXT   NOT NULL,
    app        TEXT   NOT NULL,
    protocol   TEXT   NOT NULL,
    port       BIGINT NOT NULL,
    host       TEXT   NOT NULL,
    wanted     BIGINT NOT NULL,
    chosen     BIGINT NOT NULL,
    claimed_at BIGINT NOT NULL,
    PRIMARY KEY (agent_id, namespace, app, protocol, port)
);

-- The hosts that the operator gave to an agent.
CREATE TABLE host_grants (
    host       TEXT PRIMARY KEY,
    agent_id   TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    granted_at BIGINT NOT NULL
);

-- The hosts that were announced as served, and from which agent. A host outlives its agent here until
-- it is announced that it is not served any more.
CREATE TABLE served_hosts (
    host     TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL
);

-- What the gateways keep together: certificates, their keys and the ACME account, encrypted with a
-- key that is not in here.
CREATE TABLE gateway_files (
    name        TEXT PRIMARY KEY,
    sealed      TEXT   NOT NULL,
    size        BIGINT NOT NULL,
    modified_at BIGINT NOT NULL
);

-- Which gateway obtains which certificate at present, until when by the database's clock.
CREATE TABLE gateway_locks (
    name   TEXT PRIMARY KEY,
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL
);

-- Why public hosts have no new certificate, and when the gateway tries again.
CREATE TABLE certificate_failures (
    host     TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    reason   TEXT   NOT NULL,
    next_at  BIGINT NOT NULL
);

-- Where events are sent to over HTTPS. types is a list, agents a selector of labels;
-- empty is all. The secrets are keys of HMACs, which have to be had to sign with them.
CREATE TABLE webhooks (
    name            TEXT PRIMARY KEY,
    url             TEXT   NOT NULL,
    format          TEXT   NOT NULL,
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

-- The control planes that serve the database side by side. Each renews its lease, by
-- the database's clock; one whose lease has ended is gone, and its tunnels with it.
CREATE TABLE peers (
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
    peer_id  TEXT   NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
    agent_id TEXT   NOT NULL,
    since    BIGINT NOT NULL,
    PRIMARY KEY (peer_id, agent_id)
);
CREATE INDEX tunnels_by_agent ON tunnels (agent_id);

-- The certificate authority of control planes that share one, encrypted with a key
-- that is not in here. There is one row at most.
CREATE TABLE authority (
    name    TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    sealed  TEXT   NOT NULL
);

-- The replica of each agent that told of its Apps last: the Lease's UID and how often
-- it has changed hands. What comes of one before is refused.
CREATE TABLE event_leaders (
    agent_id TEXT   PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    lease    TEXT   NOT NULL,
    term     BIGINT NOT NULL,
    -- Which of its calls the leader was heard with last: one that it gave up may arrive after
    -- the next, and is refused.
    call     BIGINT NOT NULL
);

-- Operators, which call the operator API. What a role may do is in the API's calls. The certificate's
-- serial number and key are both on record, so that a former CA's key makes no operator.
CREATE TABLE operators (
    name       TEXT PRIMARY KEY,
    role       TEXT   NOT NULL,
    serial     TEXT   NOT NULL,
    key_print  TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);

-- As which Runner an operator acts in the console. The operator may be one who signs in by OpenID
-- Connect.
CREATE TABLE acting_operators (
    operator TEXT PRIMARY KEY,
    runner   TEXT   NOT NULL,
    set_at   BIGINT NOT NULL
);

-- The operators' audit log in batches, by the number of a batch's first record. Rows are added,
-- never changed. The text is hashed as it stands.
CREATE TABLE operator_audit (
    first BIGINT PRIMARY KEY,
    text  TEXT NOT NULL
);

-- Changes that operators sent with an Idempotency-Key, with the answer once there is one.
CREATE TABLE operator_changes (
    operator TEXT   NOT NULL,
    key      TEXT   NOT NULL,
    digest   TEXT   NOT NULL,
    answer   TEXT   NOT NULL,
    begun_at BIGINT NOT NULL,
    done_at  BIGINT NOT NULL,
    PRIMARY KEY (operator, key)
);

-- Sessions of operators in the console (kind open), and the codes that open one, once (kind code).
-- digest is of the secret that the browser has. Both end with the operator's certificate, whose
-- serial number is there. With a role, the operator signed in by OpenID Connect: the role is that of
-- the sign-in, and serial is the digest of the settings.
CREATE TABLE console_sessions (
    digest     TEXT PRIMARY KEY,
    kind       TEXT   NOT NULL,
    operator   TEXT   NOT NULL,
    serial     TEXT   NOT NULL,
    role       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- Codes by which an agent learns, once, who a visitor of its host is. digest is of the code. challenge
-- is that of the verifier that has to come with it (RFC 7636). person is JSON.
CREATE TABLE visitor_codes (
    digest     TEXT PRIMARY KEY,
    agent_id   TEXT   NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    host       TEXT   NOT NULL,
    challenge  TEXT   NOT NULL,
    person     TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX visitor_codes_expires ON visitor_codes (expires_at);

-- +goose Down
DROP TABLE visitor_codes;
DROP TABLE console_sessions;
DROP TABLE operator_changes;
DROP TABLE acting_operators;
DROP TABLE operator_audit;
DROP TABLE operators;
DROP TABLE event_leaders;
DROP TABLE authority;
DROP TABLE tunnels;
DROP TABLE peers;
DROP TABLE deliveries;
DROP TABLE webhooks;
DROP TABLE certificate_failures;
DROP TABLE gateway_locks;
DROP TABLE gateway_files;
DROP TABLE host_grants;
DROP TABLE served_hosts;
DROP TABLE port_claims;
DROP TABLE host_claims;
DROP TABLE route_sets;
DROP TABLE routes;
DROP TABLE runner_trust;
DROP TABLE agent_trust;
DROP TABLE receivers;
DROP TABLE refreshes;
DROP TABLE enrolments;
DROP TABLE releases;
DROP TABLE audit;
DROP TABLE settings;
DROP TABLE timeline;
DROP TABLE received;
DROP TABLE outbox;
DROP TABLE certificates;
DROP TABLE revoked_certificates;
DROP TABLE exchanged_tokens;
DROP TABLE runners;
DROP TABLE agents;
DROP TABLE tokens;
