package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

// visit is one request and what is known of it.
type visit struct {
	id     string
	host   *Host // nil while unknown
	client string
	failed string // why the gateway answered by itself
	mode   string // how the request was passed on; empty if it was not
	body   *movingBody
	leave  func()        // its place among what is in progress
	in     *http.Request // as net/http gave it
	began  time.Time
}

func newVisit(r *http.Request) *visit {
	return &visit{id: rand.Text(), client: clientOf(r), in: r, began: time.Now()}
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// headerRequestID names a request in the logs of both ends.
const headerRequestID = "X-Request-Id"

// ServeHTTP implements http.Handler for requests over TLS.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.serve(w, r, newVisit(r))
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, v *visit) {
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	body := newMovingBody(w, r, g.cfg.Patience.Progress)
	v.body = body
	defer body.release()
	w, r.Body = gatewaywire.Duplex(w, r)
	recorded := newRecorder(w, v)
	r, traced := span.Passed(r, g.cfg.Tracer, "public request") //nolint:contextcheck // the request has its own
	defer func() { traced(recorded.status) }()
	defer func() { g.note(r, v, recorded) }()
	if f := g.refuses(r, v); f != nil {
		g.fail(recorded, r, *f)
		return
	}
	if v.host.Passed != 0 { // HTTP/2 uses a connection for several hosts (RFC 9113, section 9.1.1)
		g.fail(recorded, r, misdirected)
		return
	}
	var refused *failure
	if v.leave, refused = g.requests.enter(v); refused != nil {
		g.fail(recorded, r, *refused)
		return
	}
	defer func() { v.leave() }()
	if body.stalled() {
		g.fail(recorded, r, slowBody)
		return
	}
	if v.host == g.cfg.Table.own {
		g.sign(recorded.Header(), v)
		r.Body = dueBody{r.Body, v.began.Add(ownBodyTime)}
		g.cfg.Own.ServeHTTP(recorded, r)
		return
	}
	g.proxy.ServeHTTP(recorded, r)
}

// refuses returns why a request is not passed on, and otherwise finds its host.
func (g *Gateway) refuses(r *http.Request, v *visit) *failure {
	left, bounded := forwards(r)
	host, served := g.cfg.Table.Lookup(r.Host)
	switch {
	case r.Method == http.MethodConnect: // HTTP/1.1 gives its body no length: it would be the next request
		return &noTunnels
	case !gatewaywire.ValidTarget(r):
		return &badTarget
	case !gatewaywire.ValidHost(r.Host):
		return &badHost
	case host == nil && !g.cfg.Table.Known():
		return &starting
	case host == nil:
		return &unknownHost
	case !served:
		v.host = host // for the log
		return &offline
	case bounded && left == 0 && r.Method == http.MethodOptions:
		return &lastHop
	case bounded && left == 0:
		return &noTrace
	}
	v.host = host
	return nil
}

func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// recorder remembers the status and the size of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	visit  *visit
	closes bool // the connection takes no further request
}

func newRecorder(w http.ResponseWriter, v *visit) *recorder {
	return &recorder{ResponseWriter: w, visit: v, closes: w.Header().Get("Connection") == "close"}
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	switch {
	case status >= http.StatusOK || status == http.StatusSwitchingProtocols:
		if r.status == 0 {
			r.begin(status)
		}
	case !r.visit.in.ProtoAtLeast(1, 1): // RFC 9110, section 15.2
		return
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

func (r *recorder) begin(status int) {
	r.status = status
	if r.closes { // httputil clears the header after an interim answer
		r.Header().Set("Connection", "close")
	}
	if r.visit.body != nil {
		r.visit.body.begins()
	}
}

// Unwrap makes the other abilities available to http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// note counts and logs a request.
func (g *Gateway) note(r *http.Request, v *visit, answer *recorder) {
	agent := ""
	if v.host != nil && v.host.AgentID != "" {
		agent = g.cfg.AgentName(v.host.AgentID)
	}
	g.cfg.Metrics.answered(v, agent, answer, time.Since(v.began))
	g.log(r, v, answer, agent)
}

// log logs a request at level debug, or info if it got an error page, which has the request's ID.
func (g *Gateway) log(r *http.Request, v *visit, answer *recorder, agent string) {
	level := zerolog.DebugLevel
	if g.cfg.AccessLog || v.failed != "" && v.failed != clientGone.word {
		level = zerolog.InfoLevel
	}
	e := g.cfg.Log.WithLevel(level)
	if level < g.cfg.Log.GetLevel() || e == nil {
		return
	}
	e.Str("requestId", v.id).Str("client", v.client).Str("method", r.Method).Str("host", normal(r.Host)).Str("path", r.URL.Path).
		Str("proto", r.Proto).Int("status", answer.status).Int64("bytes", answer.bytes).Dur("took", time.Since(v.began)).Str("agent", agent).
		Str("mode", v.mode).Str("failed", v.failed).Str("traceId", span.TraceID(r.Context())).Msg("request")
}

// plain returns the handler of the HTTP port: it answers ACME's challenges, and redirects what is
// for a host that is served.
func (g *Gateway) plain() http.Handler {
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := newVisit(r)
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		defer newMovingBody(w, r, g.cfg.Patience.Progress).release()
		if f := g.refuses(r, v); f != nil {
			recorded := newRecorder(w, v)
			g.fail(recorded, r, *f)
			g.log(r, v, recorded, "")
			return
		}
		to := normal(r.Host)
		if port := g.cfg.HTTPSPort; port != 0 && port != 443 {
			to = net.JoinHostPort(to, strconv.Itoa(port))
		}
		g.sign(w.Header(), v)
		w.Header().Set("Connection", "close")
		target := strings.TrimPrefix(gatewaywire.Target(r), "*")                             // of OPTIONS
		http.Redirect(w, r, "https://"+to+cmp.Or(target, "/"), http.StatusPermanentRedirect) //nolint:gosec // the table knows the host
	})
	if g.cfg.Challenge == nil {
		return redirect
	}
	return g.cfg.Challenge(redirect)
}
