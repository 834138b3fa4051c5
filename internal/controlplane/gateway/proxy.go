package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/unsent"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const (
	dialTimeout = 10 * time.Second
	// idleStreams is how many streams to one agent stay open between requests.
	idleStreams = 64
	copyBuffer  = 32 << 10
)

// newTransport returns the transport to agents. What it takes for a host's name is an agent's ID.
func newTransport(dial dialFunc) *unsent.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := dial(ctx, hostOnly(address))
			if err != nil {
				return nil, noStreamError{err}
			}
			return conn, nil
		},
		MaxIdleConnsPerHost: idleStreams, IdleConnTimeout: gatewaywire.StreamIdle, DisableCompression: true,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize: copyBuffer, ReadBufferSize: copyBuffer,
		Protocols: new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return unsent.New(t)
}

// noStreamError means that there is no way to the agent.
type noStreamError struct{ error }

func (e noStreamError) Unwrap() error { return e.error }

func hostOnly(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func (g *Gateway) newProxy() http.Handler {
	p := gatewaywire.NewProxy(g.cfg.Log, "gateway: ")
	p.Transport, p.ModifyResponse, p.ErrorHandler = g, g.answered, g.unanswered
	p.Rewrite = func(r *httputil.ProxyRequest) {
		v := visitOf(r.In.Context())
		gatewaywire.Forward(r.Out, v.in, "http", v.host.AgentID)
		forwarded(r.Out.Header, v)
		onlyWebSockets(r.Out.Header)
	}
	return p
}

// unanswered is called for a request that has no answer.
func (g *Gateway) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	f, body := failureOf(err), visitOf(r.Context()).body
	switch {
	case body.stalled():
		f = slowBody
	case body.broken():
		f = badBody
	}
	g.fail(w, r, f)
	if f == clientGone { // net/http would send an empty answer
		panic(http.ErrAbortHandler)
	}
}

// forwarded tells the App of its client. What the client said of that itself is dropped.
func forwarded(h http.Header, v *visit) {
	for name := range h {
		if gatewaywire.Dropped(name) {
			delete(h, name)
		}
	}
	h.Set(headerRequestID, v.id)
	h.Set("X-Forwarded-For", v.client)
	h.Set("X-Real-Ip", v.client)
	h.Set("X-Forwarded-Host", v.in.Host)
	h.Set("X-Forwarded-Proto", "https")
	h.Set("Forwarded", "for="+node(v.client)+`;host="`+quotable(v.in.Host)+`";proto=https`)
	h.Add("Via", strings.TrimPrefix(v.in.Proto, "HTTP/")+" "+gatewaywire.LoopID) // RFC 9110, section 7.6.3
	if left, ok := forwards(v.in); ok {
		h.Set("Max-Forwards", strconv.FormatUint(left-1, 10))
	}
}

// forwards returns how often a request may still be passed on, if that is bounded (RFC 9110,
// section 7.6.2).
func forwards(r *http.Request) (left uint64, bounded bool) {
	if r.Method != http.MethodOptions && r.Method != http.MethodTrace {
		return 0, false
	}
	left, err := strconv.ParseUint(r.Header.Get("Max-Forwards"), 10, 32)
	return left, err == nil
}

// onlyWebSockets keeps connections from becoming anything else. In HTTP/2, a client could make
// requests of which the gateway knows nothing.
func onlyWebSockets(h http.Header) {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		h.Del("Upgrade")
		h.Del("Connection")
	}
}

// answered replaces what the agent says by itself by a page of the gateway's.
func (g *Gateway) answered(resp *http.Response) error {
	v := visitOf(resp.Request.Context())
	word := resp.Header.Get(gatewaywire.HeaderFailed)
	if word == "" {
		resp.Header.Del("Alt-Svc") // the App has no address of its own for visitors
		g.sign(resp.Header, v)
		return g.stay(v, resp)
	}
	_ = resp.Body.Close()
	return agentError(word)
}

// sign adds what is in each final answer. The App's own Strict-Transport-Security counts: there
// must be one (RFC 6797, section 7.1).
func (g *Gateway) sign(h http.Header, v *visit) {
	h.Set(headerRequestID, v.id)
	if v.in.TLS == nil {
		return
	}
	if g.cfg.HSTS > 0 && h.Get("Strict-Transport-Security") == "" {
		h.Set("Strict-Transport-Security", "max-age="+strconv.Itoa(int(g.cfg.HSTS.Seconds())))
	}
	if g.cfg.HTTP3Port > 0 && v.in.ProtoMajor < 3 {
		h.Set("Alt-Svc", fmt.Sprintf(altSvc, g.cfg.HTTP3Port))
	}
}

// agentError is an agent's own answer.
type agentError string

func (e agentError) Error() string { return "the agent answered: " + string(e) }

// failureOf returns what a failed request is answered.
func failureOf(err error) failure {
	var said agentError
	var full refusedError
	var none noStreamError
	var late net.Error
	switch {
	case errors.As(err, &said):
		if f, ok := agentFailures[string(said)]; ok {
			return f
		}
		return badGateway
	case errors.As(err, &full):
		return full.failure
	case errors.Is(err, server.ErrBusy):
		return busy
	case errors.Is(err, context.Canceled):
		return clientGone
	case errors.As(err, &none):
		return offline
	case errors.Is(err, errNoWay):
		return notReached
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return timedOut
	}
	return badGateway
}
