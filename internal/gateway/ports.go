package gateway

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

const (
	// portIdle is how long a connection to a port may have nothing to say, unless its route has
	// another time.
	portIdle = time.Hour
	// flowIdle is portIdle of a flow of datagrams, which has no other end.
	flowIdle = time.Minute
	// connectionsEach is how many connections one address may have to the ports of one App, and
	// flowsEach how many flows. A client of DNS begins a flow with each question.
	connectionsEach, flowsEach = 256, 1024
	// maxFlows is how many flows there may be in all. One host gets at most twice as many as are
	// free.
	maxFlows = 8192
	// answerWithin is how long the gateway may take to accept the answer to CONNECT.
	answerWithin = 10 * time.Second
)

// portKey identifies a public port of an App.
type portKey struct {
	host, protocol string
	port           int32
}

// ports finds the routes of public ports.
type ports map[portKey]Route

// setPorts replaces the routes of public ports. What those before have counted goes on.
func (h *Handler) setPorts(routes []Route) {
	before, now := h.ports.Load(), ports{}
	if before == nil {
		before = &ports{}
	}
	for _, r := range routes {
		if r.Protocol == "" {
			continue
		}
		key := portKey{strings.ToLower(r.Host), r.Protocol, r.Port}
		if had, there := (*before)[key]; there && had.guard.sameAs(r.Visitors) {
			r.guard = had.guard
		} else {
			r.guard = newGuard(r.Visitors)
		}
		now[key] = r
	}
	h.ports.Store(&now)
}

// relays are the connections to ports that came by one listener.
type relays struct{ group sync.WaitGroup }

type relaysKey struct{}

// connect carries a visitor's connection to a port.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request) {
	if of, ok := r.Context().Value(relaysKey{}).(*relays); ok {
		of.group.Add(1)
		defer of.group.Done()
	}
	asked, err := gatewaywire.ReadConnection(r)
	if err != nil {
		h.answer(w, r, http.StatusBadRequest, gatewaywire.Ambiguous, err)
		return
	}
	route, found := (*h.ports.Load())[portKey{strings.ToLower(asked.Host), asked.Protocol, asked.Port}]
	switch {
	case !found:
		h.answer(w, r, http.StatusNotFound, gatewaywire.NoRoute, nil)
		return
	case len(route.Addresses) == 0:
		h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.NotReady, errors.New("the Service has no address"))
		return
	}
	leave, status, word := h.enter(r, route)
	if status != 0 {
		h.answer(w, r, status, word, nil)
		return
	}
	defer leave()
	backend, err := dialPort(r.Context(), route, asked)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	stream, err := accepted(w)
	if err != nil {
		_ = backend.Close()
		h.log.Debug().Err(err).Str("requestId", asked.ID).Msg("the stream of a connection to a port has ended")
		return
	}
	idle := portIdle
	if route.Protocol == gatewaywire.UDP {
		stream, idle = gatewaywire.Packets(stream), flowIdle
	}
	gatewaywire.Relay(r.Context(), stream, backend, cmp.Or(route.Idle, idle), nil, nil)
}

// enter takes a place for a connection, or returns the status and the word for one that is refused.
func (h *Handler) enter(r *http.Request, route Route) (leave func(), status int, word string) {
	if status, word := h.admit(route.guard, r, route.Host); status != 0 {
		return nil, status, word
	}
	peer := limit.PeerOfText(net.JoinHostPort(clientOf(r).String(), "0")).String()
	visitors, hosts := h.visitors, h.streams
	if route.Protocol == gatewaywire.UDP {
		visitors, hosts = h.senders, h.flows
	}
	leaveVisitor, ok := visitors.Enter(route.Host + " " + peer)
	if !ok {
		return nil, http.StatusTooManyRequests, gatewaywire.TooMany
	}
	leaveHost, ok := hosts.Enter(route.Host)
	if !ok {
		leaveVisitor()
		return nil, http.StatusServiceUnavailable, gatewaywire.Busy
	}
	return func() { leaveHost(); leaveVisitor() }, 0, ""
}

// dialPort connects to the Service behind a port.
func dialPort(ctx context.Context, route Route, asked gatewaywire.Connection) (conn net.Conn, err error) {
	if route.Protocol == gatewaywire.UDP {
		return dialFlow(ctx, shuffled(route.Addresses)[0])
	}
	err = tryEach(ctx, shuffled(route.Addresses), func(address string) error {
		conn, err = dial(ctx, "tcp", address)
		return err
	})
	if err != nil || !route.Proxied {
		return conn, err
	}
	header := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(asked.Visitor), net.TCPAddrFromAddrPort(asked.At))
	if _, err := header.WriteTo(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// accepted answers CONNECT with 200, and returns the stream from there on.
func accepted(w http.ResponseWriter) (net.Conn, error) {
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if err = raw.SetDeadline(time.Now().Add(answerWithin)); err == nil {
		if _, err = raw.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err == nil {
			err = raw.SetDeadline(time.Time{})
		}
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return gatewaywire.Resume(raw, buffered.Reader)
}
