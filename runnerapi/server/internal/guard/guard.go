// Package guard asks the cluster owner's policy about each call, and about what it brings.
package guard

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

var operationID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// Guard decides by the cluster owner's policy what is carried out.
type Guard struct {
	Policy     backend.Policy
	Approvals  backend.Approvals
	Journal    backend.Journal
	Records    bool // sessions can be recorded
	Kubernetes *kubernetes.API
	Audit      *audit.Log
	Bodies     *request.Bodies
	Log        zerolog.Logger
}

// Check asks the cluster owner's policy about each call, as the table of calls has it. What is not
// in the table is refused, so no call can forget this.
func (g *Guard) Check(next http.Handler) http.Handler {
	calls := request.CallsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		call := request.CallOf(calls, r)
		intent, err := g.intend(w, r, call)
		if err == nil {
			if err = g.decide(intent); problem.Is(err, runnerapi.CodeApprovalRequired) {
				var done func()
				done, err = g.approve(w, r, &intent, err)
				defer done()
			}
		}
		if err == nil {
			err = g.Audit.KeepFirst(r, call, intent)
		}
		if err != nil {
			kubernetes.WriteError(w, r, g.Log, request.Error(ctx, g.Log, err))
			return
		}
		ctx = request.WithIntent(ctx, intent)
		if intent.Access != runnerapi.Writes {
			var release func()
			ctx, release = g.whileAllowed(ctx, intent)
			defer release()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// intend describes a call for the policy.
func (g *Guard) intend(w http.ResponseWriter, r *http.Request, c runnerapi.Call) (runnerapi.Intent, error) {
	if c.ID == "" || c.Access == "" {
		return runnerapi.Intent{}, runnerapi.PolicyDenied("report this: the call stands in no table", "no policy could allow this call")
	}
	if _, _, known := runnerapi.NamespaceCheckOf(c.ID); !known && !strings.Contains(c.Path, "{namespace}") {
		return runnerapi.Intent{}, runnerapi.PolicyDenied("report this: namespaceChecks lacks the call", "no policy could bound this call to namespaces")
	}
	i := runnerapi.Intent{Command: c.ID, Access: c.Access, Runner: request.Caller(r.Context()).Runner, Namespace: request.PathParam(r, "namespace"), Name: request.PathParam(r, "name")}
	if c.Path == runnerapi.ApplyPath {
		i.Namespace = request.ApplyTarget(r).Namespace
	}
	if c.ID == runnerapi.ExecCall && g.Records {
		i.Recorded = g.policy().Records(i)
	}
	if c.ID == runnerapi.KubernetesCall {
		return g.Kubernetes.Intend(w, r, i)
	}
	if id := request.PathParam(r, "id"); operationID.MatchString(id) && g.Journal != nil { // the call refuses others
		// An operation is of the namespace that its command was about.
		record, err := request.Limited(r.Context(), request.JournalLimit, func(ctx context.Context) (backend.Record, error) { return g.Journal.Find(ctx, id) })
		if err != nil && !problem.Is(err, runnerapi.CodeNotFound) {
			return runnerapi.Intent{}, err
		}
		i.Namespace = record.Target.Namespace
	}
	return i, nil
}

// policy returns the policy. A guard without one denies everything.
func (g *Guard) policy() backend.Policy { return backend.OrDeny(g.Policy) }

func (g *Guard) decide(i runnerapi.Intent) error { return g.policy().Decide(i) }

// whileAllowed returns a context that ends when the policy does not allow any more what it allowed,
// so that a stream does not outlive a change.
func (g *Guard) whileAllowed(ctx context.Context, i runnerapi.Intent) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := g.policy().Changed()
			if err := g.decide(i); err != nil {
				cancel(err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// Bring asks the policy about what a command brings beside its path.
func (g *Guard) Bring(ctx context.Context, add func(*runnerapi.Intent)) error {
	intent, ok := request.Intent(ctx)
	if !ok {
		return backend.DenyAll{}.Decide(intent) // Check did not see the call
	}
	about := intent.Namespace
	add(&intent)
	intent.Approved = intent.Approved && intent.Namespace == about // the owner was shown no other
	return g.decide(intent)
}

// BringApp returns bring for the spec of an App.
func (g *Guard) BringApp(ctx context.Context, spec runnerapi.AppSpec) error {
	return g.Bring(ctx, func(i *runnerapi.Intent) { i.App = &spec })
}
