package operatorapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// visit is a request on its way through the server.
type visit struct {
	caller Caller
	record *record
	err    error
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// admit refuses callers that may not make a call, before their body is read. It records how the
// call ends.
func (s *server) admit(d *Description) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(ctx)
		id := problem.RequestID(r.Context())
		caller, err := s.callerOf(r)
		at := &visit{caller: caller, record: newRecord(d, caller.Proven, caller.Certificate, id, s.now())}
		if wait := s.refused.Wait(caller.refusedAs(), s.now()); caller.Proven != "" && wait > 0 {
			problem.Write(w, id, problem.Errorf(problem.TooManyRequests, "wait as long as Retry-After says", "too many calls were refused").WithRetryAfter(wait))
			return
		}
		if err == nil && crossOrigin.Check(r) != nil {
			err = problem.Errorf(problem.Forbidden, "call from the control plane's own pages, or from a program", "a page of another site sent this request")
		}
		if err == nil && !administration.Includes(caller.Operator.Role, d.Role) {
			err = problem.Errorf(problem.Forbidden, "have an operator with the role "+d.Role+" do it",
				"operator %s has the role %s, and %s needs %s", caller.Operator.Name, caller.Operator.Role, d.ID, d.Role)
		}
		if err != nil {
			at.err = s.unadmitted(r.Context(), err)
			problem.Write(w, id, at.err)
		} else {
			next(huma.WithValue(ctx, visitKey{}, at))
		}
		if !d.Changes() && (left(r.Context(), at.err) || absent(at.err)) {
			return
		}
		s.leave(at, w.(middleware.WrapResponseWriter).Status())
	}
}

// left reports whether a call failed because its caller has left, such as a browser that loads
// another page. A refusal is none.
func left(ctx context.Context, err error) bool {
	var p *problem.Error
	return errors.Is(ctx.Err(), context.Canceled) && errors.As(err, &p) && p.Status >= http.StatusInternalServerError
}

// absent reports whether a call that reads found nothing to read, such as an agent whose tunnel is
// down. Open pages read again and again, and no operator was refused.
func absent(err error) bool {
	var p *problem.Error
	return errors.As(err, &p) && (p.Status == http.StatusNotFound || p.Status >= http.StatusInternalServerError)
}

// crossOrigin knows the changes that a browser with an operator's certificate sends for another
// site.
var crossOrigin = http.NewCrossOriginProtection()

// unadmitted returns the answer to a caller that may not call.
func (s *server) unadmitted(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return err
	}
	return s.wireError(ctx, err)
}

// withStatus makes the status of an answer known. Answers may have secrets: no cache keeps them.
func withStatus(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(middleware.NewWrapResponseWriter(w, r.ProtoMajor), r)
	})
}

// leave records a call's end. Strangers are in the log of requests alone: they could fill this one.
func (s *server) leave(at *visit, status int) {
	if at.err == nil && status >= http.StatusBadRequest { // huma has refused it
		at.err = problem.New(status, problem.CodeOf(status), "", "the request is not as the call takes it")
	}
	if at.err != nil && at.caller.Proven == "" {
		return
	}
	if at.err != nil {
		s.refused.Failed(at.caller.refusedAs(), s.now())
	}
	s.end(at.record, at.err)
}

// refuse answers a request that is not as the call takes it.
func refuse(ctx huma.Context, err error) {
	r, w := humachi.Unwrap(ctx)
	if at, ok := ctx.Context().Value(visitKey{}).(*visit); ok {
		at.err = err
	}
	problem.Write(w, problem.RequestID(r.Context()), err)
}

const (
	// refusalBurst is how many calls may be refused at once, and refusalEvery how often in the long
	// run. More would push older records out of the audit log.
	refusalBurst = 60
	refusalEvery = 10 * time.Second
	// visitBurst and visitEvery are the same of visitors' sign-ins.
	visitBurst = 60
	visitEvery = time.Minute
)

// refusedAs is what a caller's refused calls count for: its certificate, which the name in it may
// no longer be for, or else the name that a session or socket has proven.
func (c Caller) refusedAs() string { return cmp.Or(c.Certificate, c.Proven) }
