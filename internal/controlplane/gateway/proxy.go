package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
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
	return &httputil.ReverseProxy{
		Transport: g, BufferPool: httpserver.NewBuffers(), ErrorLog: httpserver.ErrorLog(g.cfg.Log, "gateway: "),
		Rewrite: func(r *httputil.ProxyRequest) {
			v := visitOf(r.In.Context())
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", v.host.AgentID, r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came: the App reads it, not we
			forwarded(r.Out.Header, v, r.In)
			onlyWebSockets(r.Out.Header)
		},
		ModifyResponse: g.answered,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f := failureOf(err)
			if visitOf(r.Context()).body.stalled() {
				f = slowBody
			}
			g.fail(w, r, f)
			if f == clientGone { // net/http would send an empty answer
				panic(http.ErrAbortHandler)
			}
		},
	}
}

// forwarded tells the App of its client. What the client said of that itself is dropped.
func forwarded(h http.Header, v *visit, in *http.Request) {
	for name := range gatewaywire.ClientHeaders {
		h.Del(name)
	}
	h.Set(headerRequestID, v.id)
	h.Set("X-Forwarded-For", v.client)
	h.Set("X-Real-Ip", v.client)
	h.Set("X-Forwarded-Host", in.Host)
	h.Set("X-Forwarded-Proto", "https")
	h.Set("Forwarded", "for="+node(v.client)+`;host="`+quotable(in.Host)+`";proto=https`)
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
	resp.Header.Del("Alt-Svc") // the App has no address of its own for visitors
	word := resp.Header.Get(gatewaywire.HeaderFailed)
	if word == "" {
		return g.stay(visitOf(resp.Request.Context()), resp)
	}
	_ = resp.Body.Close()
	return agentError(word)
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
