package guard

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// maxApprovedBody bounds the body of a command that needs an approval, in bytes. It is the highest
// limit of any call.
const maxApprovedBody = runnerapi.MaxReleaseBody

// approvalPending returns the refusal of a command that waits for its approval.
func approvalPending(a runnerapi.Approval) *runnerapi.Error {
	return problem.New(http.StatusForbidden, runnerapi.CodeApprovalRequired,
		"have the owner of the cluster run: pipeops-agent approve "+a.ID+"; then send the same command again",
		"the customer's policy requires an approval by the owner of the cluster: request %s waits until %s", a.ID, a.Until.UTC().Format(time.RFC3339))
}

// approve lets a command pass that the owner has approved. done ends what holds its body in memory.
func (g *Guard) approve(w http.ResponseWriter, r *http.Request, call runnerapi.Call, i *runnerapi.Intent, refusal error) (done func(), err error) {
	done = func() {}
	within := g.policy().Approval(*i)
	if g.Approvals == nil || within <= 0 {
		return done, refusal
	}
	if done, err = g.Bodies.Hold(w, r, i.Runner, maxApprovedBody); err != nil {
		return func() {}, err
	}
	var body []byte
	if r.ContentLength > 0 { // holdBody has read it
		if body, err = io.ReadAll(r.Body); err != nil {
			return done, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	a, approved, err := limitedApproval(r.Context(), g.Approvals, approvalRequest(r, call, *i, body, within))
	switch {
	case err != nil:
		return done, err
	case !approved:
		return done, approvalPending(a)
	}
	audit.NoteApproval(r.Context(), a.ID)
	i.Approved = true
	return done, g.decide(*i)
}

func limitedApproval(ctx context.Context, approvals backend.Approvals, asked backend.ApprovalRequest) (runnerapi.Approval, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, request.JournalLimit)
	defer cancel()
	return approvals.Use(ctx, asked)
}

// approvalRequest describes the command for its owner as the audit log would. The owner also needs
// the arguments of exec, which are not in the audit log.
func approvalRequest(r *http.Request, call runnerapi.Call, i runnerapi.Intent, body []byte, within time.Duration) backend.ApprovalRequest {
	about := audit.NoteWith(r.Context(), body)
	record, _ := audit.Record(r, call, &about, 0, http.Header{}, nil)
	now := time.Now().UTC()
	a := backend.ApprovalRequest{
		Approval: runnerapi.Approval{
			Runner: i.Runner, Command: i.Command, Asked: now, Until: now.Add(within), RequestID: request.Caller(r.Context()).RequestID,
			Arguments: audit.Arguments(call, r, &about, &record),
		},
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.Query().Encode(), Body: body,
	}
	a.Namespace, a.Name = record.Namespace, record.Name
	if call.ID == runnerapi.ExecCall {
		a.Run = clipped(r.URL.Query()["command"])
	}
	return a
}

// maxRun bounds what is shown of a command line, in bytes.
const maxRun = 4 << 10

func clipped(words []string) (out []string) {
	room := maxRun
	for _, word := range words {
		if room -= len(word); room < 0 {
			return append(out, "…")
		}
		out = append(out, word)
	}
	return out
}
