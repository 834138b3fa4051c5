package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type intentKey struct{}

var operationID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// guard asks the cluster owner's policy about each call, as the table of calls has it. What is not
// in the table is refused, so no call can forget this.
func (s *server) guard(next http.Handler) http.Handler {
	calls := callsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		call := callOf(calls, r)
		intent, err := s.intend(w, r, call)
		if err == nil {
			err = s.decide(intent)
		}
		if needsApproval(err) {
			var done func()
			done, err = s.approve(w, r, call, &intent, err)
			defer done()
		}
		if err == nil {
			err = s.recordFirst(r, call, intent)
		}
		if err != nil {
			s.answerError(w, r, s.wireError(ctx, err))
			return
		}
		ctx = context.WithValue(ctx, intentKey{}, intent)
		if intent.Access != runnerapi.Writes && s.Policy != nil {
			var release func()
			ctx, release = s.whileAllowed(ctx, intent)
			defer release()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// callsByRoute returns the calls by method and path.
func callsByRoute() map[string]runnerapi.Call {
	calls := map[string]runnerapi.Call{}
	for _, c := range runnerapi.Calls() {
		calls[c.Method+" "+c.Path] = c
	}
	return calls
}

// callOf returns the call that a request is routed to. HEAD is its GET; below /v1/kubernetes all
// methods and paths are one.
func callOf(calls map[string]runnerapi.Call, r *http.Request) runnerapi.Call {
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	if pattern == kubernetesPrefix+"/*" {
		return calls[http.MethodGet+" "+runnerapi.KubernetesPath]
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return calls[method+" "+pattern]
}

// intend describes a call for the policy.
func (s *server) intend(w http.ResponseWriter, r *http.Request, c runnerapi.Call) (runnerapi.Intent, error) {
	if c.ID == "" || c.Access == "" {
		return runnerapi.Intent{}, runnerapi.PolicyDenied("report this: the call stands in no table", "no policy could allow this call")
	}
	if _, _, known := runnerapi.AcrossOf(c.ID); !known && !strings.Contains(c.Path, "{namespace}") {
		return runnerapi.Intent{}, runnerapi.PolicyDenied("report this: acrossCalls lacks the call", "no policy could bound this call to namespaces")
	}
	i := runnerapi.Intent{Command: c.ID, Access: c.Access, Runner: callerFrom(r.Context()).Runner, Namespace: pathParam(r, "namespace")}
	if c.Path == runnerapi.ApplyPath {
		i.Namespace = applyTarget(r).Namespace
	}
	if c.ID == runnerapi.ExecCall && s.Policy != nil && s.Recorder != nil {
		i.Recorded = s.Policy.Records(i)
	}
	if c.ID == runnerapi.KubernetesCall {
		return s.intendKubernetes(w, r, i)
	}
	if id := pathParam(r, "id"); operationID.MatchString(id) && s.Journal != nil { // the call refuses others
		// An operation is of the namespace that its command was about.
		record, err := limited(r.Context(), journalLimit, func(ctx context.Context) (runnerapi.Record, error) { return s.Journal.Find(ctx, id) })
		if known := (*runnerapi.Error)(nil); err != nil && (!errors.As(err, &known) || known.Code != runnerapi.CodeNotFound) {
			return runnerapi.Intent{}, err
		}
		i.Namespace = record.Target.Namespace
	}
	return i, nil
}

// pathParam returns a part of the path exactly as the call itself is given it: what was sent
// escaped, huma unescapes. If the two differed, a call could be asked about for one namespace and
// carried out in another.
func pathParam(r *http.Request, name string) string {
	v := r.PathValue(name)
	if r.URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

func (s *server) decide(i runnerapi.Intent) error {
	if s.Policy == nil {
		return nil
	}
	return s.Policy.Decide(i)
}

// whileAllowed returns a context that ends when the policy does not allow any more what it allowed,
// so that a stream does not outlive a change.
func (s *server) whileAllowed(ctx context.Context, i runnerapi.Intent) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := s.Policy.Changed()
			if err := s.Policy.Decide(i); err != nil {
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

// bring asks the policy about what a command brings beside its path.
func (s *server) bring(ctx context.Context, add func(*runnerapi.Intent)) error {
	intent, ok := ctx.Value(intentKey{}).(runnerapi.Intent)
	if !ok || s.Policy == nil {
		return nil
	}
	about := intent.Namespace
	add(&intent)
	intent.Approved = intent.Approved && intent.Namespace == about // the owner was shown no other
	return s.decide(intent)
}

// bringApp returns bring for the spec of an App.
func (s *server) bringApp(ctx context.Context, spec runnerapi.AppSpec) error {
	return s.bring(ctx, func(i *runnerapi.Intent) { i.App = &spec })
}
