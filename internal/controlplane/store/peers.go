package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Peer is one of the control planes that serve a database side by side.
type Peer struct {
	ID      string
	Version string
	// Peer is where the others reach it, Tunnel where agents do and Edge where Runners
	// do: host:port each.
	Peer, Tunnel, Edge string
	StartedAt          time.Time
}

const peerColumns = `id, version, peer_address, tunnel_address, edge_address, started_at`

func scanPeer(row scanner, n *Peer) error {
	return row.Scan(&n.ID, &n.Version, &n.Peer, &n.Tunnel, &n.Edge, moment{&n.StartedAt})
}

// JoinPeer registers a control plane as alive, for the duration of the lease by the database's
// clock.
func (s *Store) JoinPeer(ctx context.Context, n Peer, lease time.Duration) error {
	_, err := s.exec(ctx, `INSERT INTO peers (`+peerColumns+`, lease_until) VALUES ($1, $2, $3, $4, $5, $6, `+s.engine.clock()+` + $7)
		ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`,
		n.ID, n.Version, n.Peer, n.Tunnel, n.Edge, micros(n.StartedAt), lease.Microseconds())
	return err
}

// RenewPeer renews a lease. It returns false for a peer that the others have removed. A lease of 0
// ends it.
func (s *Store) RenewPeer(ctx context.Context, id string, lease time.Duration) (bool, error) {
	n, err := s.quiet().exec(ctx, `UPDATE peers SET lease_until = `+s.engine.clock()+` + $1 WHERE id = $2`, lease.Microseconds(), id)
	return n > 0, err
}

// Peers lists those that live, in the order of their IDs.
func (s *Store) Peers(ctx context.Context) ([]Peer, error) {
	return all(ctx, s.q, scanPeer, `SELECT `+peerColumns+` FROM peers WHERE lease_until > `+s.engine.clock()+` ORDER BY id`)
}

// RemovePeers forgets those whose lease ended so long ago, with their tunnels.
func (s *Store) RemovePeers(ctx context.Context, ago time.Duration) (int64, error) {
	dead, err := all(ctx, s.q, func(row scanner, id *string) error { return row.Scan(id) },
		`SELECT id FROM peers WHERE lease_until < `+s.engine.clock()+` - $1`, ago.Microseconds())
	if err != nil || len(dead) == 0 {
		return 0, err
	}
	return s.exec(ctx, `DELETE FROM peers WHERE lease_until < `+s.engine.clock()+` - $1`, ago.Microseconds())
}

// PeersOf lists the peers that live and have a tunnel to the agent, the newest
// tunnel's first.
func (s *Store) PeersOf(ctx context.Context, agentID string) ([]Peer, error) {
	return all(ctx, s.q, scanPeer, `SELECT `+peerColumns+` FROM peers JOIN tunnels ON peer_id = id
		WHERE agent_id = $1 AND lease_until > `+s.engine.clock()+` ORDER BY since DESC, id`, agentID)
}

// rowsAtATime bounds how many rows one statement writes: SQLite takes 32766 values.
const rowsAtATime = 500

// SetTunnels records which agents have a tunnel to a peer, and since when; the zero time means that
// a tunnel is gone.
func (s *Store) SetTunnels(ctx context.Context, nodeID string, since map[string]time.Time) error {
	up, down := []any{}, []any{}
	for agentID, at := range since {
		if at.IsZero() {
			down = append(down, agentID)
		} else {
			up = append(up, agentID, micros(at))
		}
	}
	q := s.quiet()
	for part := range slices.Chunk(up, rowsAtATime*2) {
		_, err := q.exec(ctx, `INSERT INTO tunnels (peer_id, agent_id, since) VALUES `+rowsOf(len(part)/2, 2, 2, "$1, $%d, $%d")+`
			ON CONFLICT (peer_id, agent_id) DO UPDATE SET since = excluded.since`, append([]any{nodeID}, part...)...)
		if err != nil {
			return err
		}
	}
	for part := range slices.Chunk(down, rowsAtATime) {
		_, err := q.exec(ctx, `DELETE FROM tunnels WHERE peer_id = $1 AND agent_id IN `+rowsOf(1, len(part), 2, strings.TrimSuffix(strings.Repeat("$%d, ", len(part)), ", ")),
			append([]any{nodeID}, part...)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsOf writes rows of a statement, whose values are numbered from first on.
func rowsOf(rows, values, first int, row string) string {
	var text strings.Builder
	numbers := make([]any, values)
	for i := range rows {
		for j := range numbers {
			numbers[j] = first + i*values + j
		}
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "("+row+")", numbers...)
	}
	return text.String()
}

// Misplaced is an agent whose state contradicts its tunnels and heartbeats.
type Misplaced struct {
	AgentID string
	// Tunnel reports whether it has one to a peer that lives; if so it is online, unless Silent: no
	// heartbeat for too long.
	Tunnel, Silent bool
	// Orphaned reports that the agent had a tunnel to a peer that is gone.
	Orphaned bool
}

// Misplaced lists the agents that are online without a tunnel or a heartbeat after
// that time, and those that are not and have both. Having connected counts as a
// heartbeat. One statement compares all agents with all tunnels.
func (s *Store) Misplaced(ctx context.Context, silentSince time.Time) ([]Misplaced, error) {
	scan := func(row scanner, m *Misplaced) error {
		var heard, up, orphaned int64
		err := row.Scan(&m.AgentID, &heard, &up, &orphaned)
		m.Tunnel, m.Silent, m.Orphaned = up > 0, max(heard, up) < micros(silentSince), orphaned > 0
		return err
	}
	clock := s.engine.clock()
	return all(ctx, s.q, scan, `SELECT id, last_seen, up, orphaned FROM (
		SELECT agents.id, agents.state, agents.last_seen,
			COALESCE(MAX(CASE WHEN peers.lease_until > `+clock+` THEN tunnels.since END), 0) AS up,
			COALESCE(MAX(CASE WHEN peers.lease_until <= `+clock+` THEN 1 END), 0) AS orphaned
		FROM agents LEFT JOIN tunnels ON tunnels.agent_id = agents.id LEFT JOIN peers ON peers.id = tunnels.peer_id
		WHERE agents.revoked_at = 0 GROUP BY agents.id, agents.state, agents.last_seen) AS presence
		WHERE state = 'online' AND (up = 0 OR up < $1 AND last_seen < $1)
			OR state <> 'online' AND up <> 0 AND (up >= $1 OR last_seen >= $1)`, micros(silentSince))
}

// peerTable has the statements about control planes.
type peerTable struct{ table }

// AgentsElsewhere returns the agents that were announced to Runners with another address.
func (q peerTable) AgentsElsewhere(ctx context.Context, edge string) ([]Agent, error) {
	return all(ctx, q.q, scanAgent, `SELECT `+agentSelect+` FROM agents WHERE edge_address <> $1 AND revoked_at = 0 ORDER BY name, id`, edge)
}
