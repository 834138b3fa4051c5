package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

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
	leave  func() // its place among what is under way
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
	g.serve(w, r, &visit{client: clientOf(r)})
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, v *visit) {
	v.id = rand.Text()
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	body := newMovingBody(w, r, g.cfg.Patience.Progress)
	v.body = body
	defer body.release()
	recorded := &recorder{ResponseWriter: w, begins: body.begins}
	r, traced := span.Passed(r, g.cfg.Tracer, "public request") //nolint:contextcheck // the request has its own
	defer func() { traced(recorded.status) }()
	began := time.Now()
	defer func() { g.note(r, v, recorded, time.Since(began)) }()
	w.Header().Set(headerRequestID, v.id)
	if g.cfg.HSTS > 0 {
		w.Header().Set("Strict-Transport-Security", "max-age="+strconv.Itoa(int(g.cfg.HSTS.Seconds())))
	}
	if r.Method == http.MethodConnect { // HTTP/1.1 gives its body no length: it would be the next request
		g.fail(recorded, r, noTunnels)
		return
	}
	if g.cfg.HTTP3Port > 0 && r.ProtoMajor < 3 {
		w.Header().Set("Alt-Svc", fmt.Sprintf(altSvc, g.cfg.HTTP3Port))
	}
	host, ok := g.cfg.Table.Lookup(r.Host)
	if !ok {
		g.fail(recorded, r, g.missing())
		return
	}
	v.host = host
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
	g.proxy.ServeHTTP(recorded, r)
}

// missing returns what a request for a host without a route is answered.
func (g *Gateway) missing() failure {
	if !g.cfg.Table.Known() {
		return starting
	}
	return unknownHost
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
	// begins is called before the header of an answer is sent.
	begins func()
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		r.begin(status)
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
	r.begins()
}

// Unwrap makes the other abilities available to http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// note counts and logs a request.
func (g *Gateway) note(r *http.Request, v *visit, answer *recorder, took time.Duration) {
	agent := ""
	if v.host != nil {
		agent = g.cfg.AgentName(v.host.AgentID)
	}
	g.cfg.Metrics.answered(v, agent, answer, took)
	level := zerolog.DebugLevel
	if g.cfg.AccessLog {
		level = zerolog.InfoLevel
	}
	e := g.cfg.Log.WithLevel(level)
	if level < g.cfg.Log.GetLevel() || e == nil {
		return
	}
	e.Str("requestId", v.id).Str("client", v.client).Str("method", r.Method).Str("host", normal(r.Host)).Str("path", r.URL.Path).
		Str("proto", r.Proto).Int("status", answer.status).Int64("bytes", answer.bytes).Dur("took", took).Str("agent", agent).
		Str("mode", v.mode).Str("failed", v.failed).Str("traceId", span.TraceID(r.Context())).Msg("request")
}

// plain returns the handler of the HTTP port: it answers ACME's challenges, and redirects what is
// for a host that is served.
func (g *Gateway) plain() http.Handler {
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{id: rand.Text(), client: clientOf(r)}
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		w.Header().Set(headerRequestID, v.id)
		defer newMovingBody(w, r, g.cfg.Patience.Progress).release()
		if _, ok := g.cfg.Table.Lookup(r.Host); !ok {
			g.fail(w, r, g.missing())
			return
		}
		to := *r.URL
		to.Scheme, to.Host = "https", normal(r.Host)
		if port := g.cfg.HTTPSPort; port != 0 && port != 443 {
			to.Host = net.JoinHostPort(to.Host, strconv.Itoa(port))
		}
		if !strings.HasPrefix(to.Path, "/") { // OPTIONS *
			to.Path = "/"
		}
		w.Header().Set("Connection", "close")
		http.Redirect(w, r, to.String(), http.StatusPermanentRedirect) //nolint:gosec // the table knows the host
	})
	if g.cfg.Challenge == nil {
		return redirect
	}
	return g.cfg.Challenge(redirect)
}
