package peerlink

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// Replica is one of the control planes that serve a database, as it reports itself.
type Replica struct {
	ID        string    `json:"id,omitempty" doc:"Chosen at each start; absent for a control plane that serves its database alone."`
	Name      string    `json:"name,omitempty" doc:"Name of its machine or pod; absent if it does not answer."`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Peer      string    `json:"peer,omitempty" doc:"Where the other control planes reach it."`
	Tunnel    string    `json:"tunnel" doc:"Where agents reach it."`
	Edge      string    `json:"edge" doc:"Where Runners reach it."`
	State     string    `json:"state" enum:"ready,degraded,not ready,unreachable" doc:"Degraded: agents and Runners are served, but a check failed. Unreachable: the control plane that answers this call gets no answer from it."`
	Leads     bool      `json:"leads" doc:"It does what only one of them does, such as announcing."`
	Answers   bool      `json:"answers" doc:"It is the one that answers this call."`
	Agents    int       `json:"agents" doc:"Agents with a tunnel to it."`
	Reason    string    `json:"reason,omitempty" doc:"Why it is unreachable."`
	Checks    []Check   `json:"checks" nullable:"false" doc:"As /readyz reports them, failed ones first."`
}

// Check is what a control plane found about one of its parts.
type Check struct {
	Name string `json:"name" example:"database"`
	OK   bool   `json:"ok"`
	Text string `json:"text" example:"answers"`
}

// The states of a Replica.
const (
	Ready       = "ready"
	Degraded    = "degraded"
	NotReady    = "not ready"
	Unreachable = "unreachable"
)

// Title returns the name, or the ID of one that does not answer.
func (r Replica) Title() string {
	return cmp.Or(r.Name, r.ID)
}

// Wrong returns why it is unreachable, and the checks that failed.
func (r Replica) Wrong() (list []string) {
	if r.Reason != "" {
		list = append(list, r.Reason)
	}
	for _, check := range r.Checks {
		if !check.OK {
			list = append(list, check.Name+": "+check.Text)
		}
	}
	return list
}

// maxReplica bounds what a control plane reports.
const maxReplica = 256 << 10

// Replica asks the control plane of that name and address what it reports of itself.
func (c *Client) Replica(ctx context.Context, peer, address string) (r Replica, err error) {
	far, err := c.dial(ctx, peer, address)
	if err != nil {
		return r, fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	defer func() { _ = far.Close() }()
	if err := ask(ctx, far, request{Report, peer, addrPort(far.LocalAddr())}); err != nil {
		return r, fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = far.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(far, maxReplica+1))
	if err == nil {
		r, err = decodeReplica(text)
	}
	if err != nil {
		return Replica{}, fmt.Errorf("control plane %s at %s: its report: %w", peer, address, err)
	}
	return r, nil
}

func decodeReplica(text []byte) (r Replica, err error) {
	err = decode.LimitsFor(maxReplica).JSON(text, &r)
	return r, err
}

// report answers a request for this control plane's report.
func (s *Server) report(ctx context.Context, conn *tls.Conn) {
	if s.cfg.Report == nil {
		refuse(conn, statusFailed)
		return
	}
	text, err := json.Marshal(s.cfg.Report(ctx))
	if err != nil {
		s.cfg.Log.Error().Err(err).Msg("failed to write the report for another control plane")
		refuse(conn, statusFailed)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	_, _ = conn.Write(append([]byte{statusTaken}, text...)) // the other is gone if this fails
	_ = conn.Close()
}
