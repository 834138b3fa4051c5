package guard

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/approval"
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
func (g *Guard) approve(w http.ResponseWriter, r *http.Request, i *runnerapi.Intent, refusal error) (done func(), err error) {
	done = func() {}
	within := g.policy().Approval(*i)
	if g.Approvals == nil || within <= 0 {
		return done, refusal
	}
	if done, err = g.Bodies.Hold(w, r, i.Runner, maxApprovedBody); err != nil {
		return func() {}, err
	}
	var body []byte
	if r.ContentLength > 0 { // Hold has read it
		if body, err = io.ReadAll(r.Body); err != nil {
			return done, err
		}
	}
	command, err := approval.New(r, *i, body)
	if err != nil {
		return done, err
	}
	shown := command.View()
	if shown.Unseen != "" && !g.policy().ApprovesUnseen(*i) {
		return done, unseen(shown)
	}
	asked, err := approvalRequest(r.Context(), command, shown, within)
	if err != nil {
		return done, err
	}
	a, approved, err := limitedApproval(r.Context(), g.Approvals, asked)
	switch {
	case err != nil:
		return done, err
	case !approved:
		return done, approvalPending(a)
	}
	command.Carry(r)
	audit.NoteApproval(r.Context(), a.ID)
	i.Approved = true
	return done, g.decide(*i)
}

func limitedApproval(ctx context.Context, approvals backend.Approvals, asked backend.ApprovalRequest) (runnerapi.Approval, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, request.JournalLimit)
	defer cancel()
	return approvals.Use(ctx, asked)
}

// unseen returns the refusal of a command that the owner could not see whole.
func unseen(v runnerapi.ApprovalView) *runnerapi.Error {
	return runnerapi.PolicyDenied("send it in a form that can be shown, or have the owner of the cluster set approveUnseen in the rule",
		"the customer's policy requires an approval by the owner of the cluster, who cannot be shown this command whole: %s", v.Unseen)
}

func approvalRequest(ctx context.Context, command approval.Request, shown runnerapi.ApprovalView, within time.Duration) (backend.ApprovalRequest, error) {
	now := time.Now().UTC()
	text, err := command.Bytes()
	return backend.ApprovalRequest{
		Approval: runnerapi.Approval{
			Runner: command.Runner, Actor: command.Actor, Command: command.Command, Namespace: command.Namespace, Name: command.Name,
			RequestID: request.Caller(ctx).RequestID, Asked: now, Until: now.Add(within), Request: shown,
		},
		Bytes: text,
	}, err
}
