package gateway

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
)

const (
	// answerTimeout is how long a backend may take to begin its answer, unless its route has
	// another time. One that speaks HTTP/2 may take longer: a gRPC stream has nothing to say for
	// hours.
	answerTimeout = time.Minute
	// maxRequests is how many requests one replica takes at a time, and maxStreams how many others
	// whose answer continues. Of both, one host gets at most twice as many as are free.
	maxRequests, maxStreams = 2048, 16384
	maxHeader               = 128 << 10
)

// Handler passes public requests to Services.
type Handler struct {
	// Endpoints is how the cluster's own load balancer is reached. It is set before Serve.
	Endpoints Endpoints
	// Traffic is what is counted of Apps' requests.
	Traffic *traffic.Counters

	routes     atomic.Pointer[table] // nil until known is closed
	ports      atomic.Pointer[ports] // likewise
	known      chan struct{}         // closed by the first Set
	log        zerolog.Logger
	tracer     trace.TracerProvider
	transports *transports
	proxy      *httputil.ReverseProxy
	requests   *limit.Shares // in progress, by host
	streams    *limit.Shares
	visitors   *limit.Shares // connections to ports, by host and address
	flows      *limit.Shares // of datagrams, by host, and senders by host and address
	senders    *limit.Shares
	checks     *limit.Shares // of passwords, by host; waiting has also those that wait for one
	waiting    *limit.Shares
	signIns    *signIns
	mirrors    *mirrors
	leaving    httpserver.Leaving
}

// NewHandler returns a Handler that knows no routes yet. tracer makes spans of requests; nil for
// none.
func NewHandler(tracer trace.TracerProvider, log zerolog.Logger) *Handler {
	h := &Handler{
		tracer: tracer, log: log.With().Str("part", "gateway").Logger(), known: make(chan struct{}),
		Traffic:  traffic.New(nil),
		requests: limit.NewFairShares(maxRequests, maxRequests), streams: limit.NewFairShares(maxStreams, maxStreams),
		checks: limit.NewShares(checksTogether, checksEach), waiting: limit.NewShares(maxRequests, checksWaiting),
		transports: newTransports(), mirrors: newMirrors(),
		visitors: limit.NewShares(maxStreams, connectionsEach),
		flows:    limit.NewFairShares(maxFlows, maxFlows), senders: limit.NewShares(maxFlows, flowsEach),
	}
	h.signIns = newSignIns(h)
	h.proxy = gatewaywire.NewProxy(h.log, "")
	h.proxy.Rewrite, h.proxy.Transport, h.proxy.ModifyResponse, h.proxy.ErrorHandler = h.rewrite, h.transports, h.own, h.failed
	return h
}

// Set replaces the routes. Until its first call, requests wait: what is not known yet is not
// missing. It must not be called concurrently.
func (h *Handler) Set(routes []Route) {
	before := h.routes.Load()
	if before == nil {
		before = &table{}
		defer close(h.known)
	}
	t := newTable(h.counted(routes), *before)
	h.setPorts(routes)
	h.routes.Store(&t)
}

// counted returns the routes with what counts their requests.
func (h *Handler) counted(routes []Route) []Route {
	routes = slices.Clone(routes)
	var logged []traffic.App
	for _, r := range routes {
		if r.AccessLog && r.isCounted() {
			logged = append(logged, traffic.App{Namespace: r.Namespace, Name: r.App})
		}
	}
	h.Traffic.Logs.Keep(logged)
	for i := range routes {
		r := &routes[i]
		if !r.isCounted() {
			continue
		}
		app := traffic.App{Namespace: r.Namespace, Name: r.App}
		r.counts, r.log = h.Traffic.Host(traffic.Owner{App: app, Host: strings.ToLower(r.Host)}), h.Traffic.Logs.Of(app)
	}
	return routes
}

// Known reports whether Set was called.
func (h *Handler) Known() bool { return h.routes.Load() != nil }

// await waits until the routes are known, though not for long. It reports whether they are.
func (h *Handler) await(ctx context.Context) bool {
	if h.Known() {
		return true
	}
	late := time.NewTimer(gatewaywire.StartPatience)
	defer late.Stop()
	select {
	case <-h.known:
	case <-ctx.Done():
	case <-late.C:
	}
	return h.Known()
}

// Close ends the copies of requests that are in progress, and closes the connections that are not
// in use.
func (h *Handler) Close() {
	h.mirrors.close()
	h.transports.close()
}

type targetKey struct{}

// target is where a request goes: to an address, or to another one if no pod accepts it there.
type target struct {
	address string
	others  []string
	http2   bool
	in      *http.Request // as net/http gave it
	within  time.Duration
	limited bool // within holds for HTTP/2, too
	place   *place
	filters *Filters // of the route; nil for none
	of      *Filters // of the backend
	path    string   // in place of the request's; empty for its own
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.tracer == nil {
		h.serve(w, r, r)
		return
	}
	noted := &statusWriter{ResponseWriter: w}
	out, traced := span.Passed(r, h.tracer, "public request") //nolint:contextcheck // the request has its own
	defer func() { traced(noted.status) }()
	h.serve(noted, out, r)
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap makes the other abilities available to http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (h *Handler) serve(w http.ResponseWriter, r, in *http.Request) {
	if !h.await(r.Context()) {
		h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.Starting, nil)
		return
	}
	if r.Method == http.MethodConnect {
		h.connect(w, r)
		return
	}
	routes, host, by := h.routes.Load(), hostOf(r), askedBy(r)
	found := routes.find(host, pathOf(r), &by)
	route := cmp.Or(found, nowhere)
	at := entered(route, r)
	leave, ok := h.requests.Enter(route.Host)
	if !ok {
		answer := &gatewaywire.Answer{ResponseWriter: w}
		h.answer(answer, r, http.StatusServiceUnavailable, gatewaywire.Busy, nil)
		at.ended(answer, r, in)
		return
	}
	at.leave = leave
	defer func() { at.leave() }()
	if r.Header.Get(gatewaywire.HeaderKeyWanted) != "" {
		h.key(w, r)
		return
	}
	answer, body := gatewaywire.Duplex(w, r)
	defer at.ended(answer, r, in)
	w = answer
	if gates := routes.gates(host); len(gates) > 0 && signin.Reserved(pathOf(r)) {
		h.signIns.ownPage(w, r, host, gates)
		return
	}
	raw, query, _ := strings.Cut(gatewaywire.Target(in), "?")
	switch {
	case routes.ambiguous(host, raw, found, &by):
		h.answer(w, r, http.StatusBadRequest, gatewaywire.Ambiguous, nil)
		return
	case found == nil:
		h.answer(w, r, http.StatusNotFound, gatewaywire.NoRoute, nil)
		return
	case route.closed():
		h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.NotReady, errors.New("the Service has no address"))
		return
	}
	if status, word := h.admit(route.guard, r, route.Host); status != 0 {
		if word == gatewaywire.SignIn && signin.Navigates(r) {
			h.signIns.begin(w, r, in, route.guard, host)
			return
		}
		h.answer(w, r, status, word, nil)
		return
	}
	if route.Filters != nil && route.Filters.Redirect != nil {
		h.redirect(w, r, route, raw, query)
		return
	}
	if route.Visitors.MaxBodyBytes > 0 && body != nil {
		body = http.MaxBytesReader(w, body, route.Visitors.MaxBodyBytes)
	}
	to := target{in: in, within: cmp.Or(route.Within, answerTimeout), limited: route.Limited, place: at, filters: route.Filters}
	if status, word := to.lead(route, r, raw); status != 0 {
		h.answer(w, r, status, word, nil)
		return
	}
	out := r.WithContext(context.WithValue(r.Context(), targetKey{}, to))
	out.Body = body // of the copy: net/http looks at its own request after the handler
	h.proxy.ServeHTTP(w, out)
}

// lead chooses where a request goes. It returns the status and the word for one that goes nowhere,
// or zero.
func (to *target) lead(route *Route, r *http.Request, raw string) (status int, word string) {
	backend, ok := route.choose()
	switch {
	case !ok:
		return http.StatusInternalServerError, gatewaywire.NoBackend
	case len(backend.Addresses) == 0:
		return http.StatusServiceUnavailable, gatewaywire.NotReady
	}
	addresses := shuffled(backend.Addresses)
	to.address, to.others = addresses[0], addresses[1:]
	to.http2, to.of = backend.HTTP2 || gatewaywire.IsGRPC(r.Header), backend.Filters
	if to.filters != nil && to.filters.Path != nil {
		if to.path, ok = to.filters.Path.apply(route, raw); !ok {
			return http.StatusBadRequest, gatewaywire.Ambiguous
		}
	}
	return 0, ""
}

// nowhere stands for the route of a request that has none.
var nowhere = &Route{}

func hostOf(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// pathOf returns the path by which a route is found. OPTIONS * is about the App as a whole.
func pathOf(r *http.Request) string {
	if r.URL.Path == "*" {
		return "/"
	}
	return r.URL.Path
}

// rewrite passes a request on as it came, with what the gateway says of its client.
func (h *Handler) rewrite(r *httputil.ProxyRequest) {
	to := r.In.Context().Value(targetKey{}).(target)
	gatewaywire.Forward(r.Out, to.in, "http", to.address)
	for name := range gatewaywire.ClientHeaders {
		if values := r.In.Header[name]; len(values) > 0 {
			r.Out.Header[name] = values
		}
	}
	signin.RemoveCookies(r.Out.Header)
	if to.filters != nil || to.of != nil {
		h.filter(r.Out, to)
	}
}

// own keeps backends from speaking in the agent's name, and counts an answer that may go on for
// long among the streams.
func (h *Handler) own(resp *http.Response) error {
	resp.Header.Del(gatewaywire.HeaderFailed)
	to := resp.Request.Context().Value(targetKey{}).(target)
	for _, f := range []*Filters{to.filters, to.of} {
		if f != nil {
			f.Response.apply(resp.Header)
		}
	}
	at, stays := to.place, gatewaywire.Stays(resp)
	if stays {
		leave, ok := h.streams.Enter(at.host)
		switch {
		case ok:
			at.leave()
			at.leave = leave
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return errBusy
		}
	}
	at.answered(resp, stays)
	return nil
}

var errBusy = errors.New("too many streams")

// failed answers a request whose backend gave no answer.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	var (
		refused notReadyError
		late    net.Error
		large   *http.MaxBytesError
	)
	switch {
	case r.Context().Err() != nil: // the visitor is gone
		return
	case errors.As(err, &large):
		h.answer(w, r, http.StatusRequestEntityTooLarge, gatewaywire.TooLarge, nil)
	case errors.Is(err, errBusy):
		h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.Busy, err)
	case errors.As(err, &refused):
		h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.NotReady, err)
	case errors.As(err, &late) && late.Timeout():
		h.answer(w, r, http.StatusGatewayTimeout, gatewaywire.TimedOut, err)
	default:
		h.answer(w, r, http.StatusBadGateway, gatewaywire.Unreachable, err)
	}
}

// answer sends a word for which the gateway has a page.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, status int, word string, err error) {
	h.log.Debug().Err(err).Str("requestId", r.Header.Get("X-Request-Id")).Str("host", r.Host).Str("failed", word).Msg("public request failed")
	w.Header().Set(gatewaywire.HeaderFailed, word)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}
