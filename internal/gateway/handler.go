package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/internal/unsent"
)

const (
	dialTimeout = 5 * time.Second
	// refusedFor is how long a Service is tried that refuses connections, and firstPause and
	// lastPause are the times between two attempts.
	refusedFor            = 2 * time.Second
	firstPause, lastPause = 5 * time.Millisecond, 200 * time.Millisecond
	// answerTimeout is how long a backend may take to begin its answer, unless its route has
	// another time. One that speaks HTTP/2 may take longer: a gRPC stream has nothing to say for
	// hours.
	answerTimeout = time.Minute
	// maxRequests is how many requests one replica takes at a time, and maxStreams how many others
	// whose answer continues. Of both, one host gets at most twice as many as are free.
	maxRequests, maxStreams = 2048, 16384
	// idleBackends is how many connections to one Service stay open between requests, and idleFor
	// how long. That is shorter than servers keep them, which is 2 s at least: a server that closes
	// one loses the request that is on its way.
	idleBackends = 64
	idleFor      = time.Second
	maxHeader    = 128 << 10
	copyBuffer   = 32 << 10
)

// Handler passes public requests to Services.
type Handler struct {
	// Endpoints is how the cluster's own load balancer is reached. It is set before Serve.
	Endpoints Endpoints
	// Traffic is what is counted of Apps' requests.
	Traffic *traffic.Counters

	routes   atomic.Pointer[table] // nil until known is closed
	ports    atomic.Pointer[ports] // likewise
	known    chan struct{}         // closed by the first Set
	log      zerolog.Logger
	tracer   trace.TracerProvider
	http1    sync.Map // of *unsent.Transport, by the time for the answer
	http2    *http.Transport
	limited  sync.Map // of *http.Transport for HTTP/2, by the time for the answer
	proxy    *httputil.ReverseProxy
	requests *limit.Shares // in progress, by host
	streams  *limit.Shares
	visitors *limit.Shares // connections to ports, by host and address
	checks   *limit.Shares // of passwords, by host; waiting has also those that wait for one
	waiting  *limit.Shares
	signIns  *signIns
	mirrors  *mirrors
	leaving  httpserver.Leaving
}

// NewHandler returns a Handler that knows no routes yet. tracer makes spans of requests; nil for
// none.
func NewHandler(tracer trace.TracerProvider, log zerolog.Logger) *Handler {
	h := &Handler{
		tracer: tracer, log: log.With().Str("part", "gateway").Logger(), known: make(chan struct{}),
		Traffic:  traffic.New(nil),
		requests: limit.NewFairShares(maxRequests, maxRequests), streams: limit.NewFairShares(maxStreams, maxStreams),
		checks: limit.NewShares(checksTogether, checksEach), waiting: limit.NewShares(maxRequests, checksWaiting),
		mirrors:  newMirrors(),
		visitors: limit.NewShares(maxStreams, connectionsEach),
	}
	h.signIns = newSignIns(h)
	h.http2 = transport()
	h.http2.Protocols.SetUnencryptedHTTP2(true)
	h.proxy = gatewaywire.NewProxy(h.log, "")
	h.proxy.Rewrite, h.proxy.Transport, h.proxy.ModifyResponse, h.proxy.ErrorHandler = h.rewrite, h, h.own, h.failed
	return h
}

// http1Within returns the transport for Services that may take so long to begin their answers.
// Routes have tenths of a second up to ten seconds, and whole seconds up to an hour.
func (h *Handler) http1Within(within time.Duration) *unsent.Transport {
	if known, ok := h.http1.Load(within); ok {
		return known.(*unsent.Transport)
	}
	t := transport()
	t.Protocols.SetHTTP1(true)
	t.ResponseHeaderTimeout = within
	kept, _ := h.http1.LoadOrStore(within, unsent.New(t))
	return kept.(*unsent.Transport)
}

// http2Within is http1Within for Services that speak HTTP/2, and whose route limits them.
func (h *Handler) http2Within(within time.Duration) *http.Transport {
	if known, ok := h.limited.Load(within); ok {
		return known.(*http.Transport)
	}
	t := transport()
	t.Protocols.SetUnencryptedHTTP2(true)
	t.ResponseHeaderTimeout = within
	kept, _ := h.limited.LoadOrStore(within, t)
	return kept.(*http.Transport)
}

func transport() *http.Transport {
	return &http.Transport{
		DialContext: dial, MaxIdleConnsPerHost: idleBackends, IdleConnTimeout: idleFor, DisableCompression: true,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader, Protocols: new(http.Protocols),
		WriteBufferSize: copyBuffer, ReadBufferSize: copyBuffer,
	}
}

// dial connects to a Service.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, notReadyError{err}
	}
	return conn, nil
}

// notReadyError means that a Service accepts no connection.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// refused reports whether another pod may take the connection: this one has ended, and the cluster
// still leads to it.
func (e notReadyError) refused() bool {
	return errors.Is(e, syscall.ECONNREFUSED) || errors.Is(e, syscall.EHOSTUNREACH)
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
	h.http1.Range(func(_, t any) bool {
		t.(*unsent.Transport).CloseIdleConnections()
		return true
	})
	h.limited.Range(func(_, t any) bool {
		t.(*http.Transport).CloseIdleConnections()
		return true
	})
	h.http2.CloseIdleConnections()
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
		if word == gatewaywire.SignIn && route.guard.gate.Provider != nil && signin.Navigates(r) {
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

// RoundTrip implements http.RoundTripper. It tries again while pods refuse the connection, though
// not for long.
func (h *Handler) RoundTrip(r *http.Request) (*http.Response, error) {
	to := r.Context().Value(targetKey{}).(target)
	var transport http.RoundTripper = h.http2
	switch {
	case !to.http2:
		transport = h.http1Within(to.within)
	case to.limited:
		transport = h.http2Within(to.within)
	}
	if r.Body != nil && r.Body != http.NoBody {
		out := *r
		out.Body = io.NopCloser(r.Body) // for the next attempt; the proxy closes it
		r = &out
	}
	var resp *http.Response
	err := tryEach(r.Context(), slices.Concat([]string{to.address}, to.others), func(address string) error {
		out, at := *r, *r.URL
		at.Host = address
		out.URL = &at
		var err error
		resp, err = transport.RoundTrip(&out) //nolint:bodyclose // the caller does
		return err
	})
	return resp, err
}

// tryEach tries addresses in turns while pods refuse the connection, though not for long.
func tryEach(ctx context.Context, addresses []string, try func(address string) error) error {
	began, pause := time.Now(), retry.Backoff(firstPause, lastPause)
	for next := 0; ; next++ {
		err := try(addresses[next%len(addresses)])
		var none notReadyError
		if !errors.As(err, &none) || !none.refused() || time.Since(began) >= refusedFor || !retry.Wait(ctx, pause.NextBackOff()) {
			return err
		}
	}
}

// shuffled returns the addresses of a Service from any of them on: each gets its share.
func shuffled(addresses []string) []string {
	first := rand.IntN(len(addresses)) //nolint:gosec // spreading load needs no secrecy
	return slices.Concat(addresses[first:], addresses[:first])
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
