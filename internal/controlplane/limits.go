package controlplane

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/agents"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Limits bound what one peer can use of the control plane. Zero values select the defaults, which
// do not affect normal work: see limit.Config.
type Limits struct {
	// Connections is how many connections each listener holds open at a time.
	Connections int
	// PerAddress is how many of them one address may have, and how many it may open at once.
	// NewPerSecond is how many it may open per second in the long run.
	PerAddress, NewPerSecond int
	// SharedAddresses are networks that many agents or Runners share as their address, such as that
	// of a load balancer. They only have the limits that hold for all.
	SharedAddresses []netip.Prefix
	// Outbox bounds the announcements that wait.
	Outbox store.OutboxLimits
	// Refreshes is how many agents get a refresh request at the same time.
	Refreshes int
}

func (l *Limits) setDefaults() {
	l.Connections = cmp.Or(l.Connections, limit.DefaultConnections)
	l.PerAddress = cmp.Or(l.PerAddress, limit.DefaultPerPeer)
	l.NewPerSecond = cmp.Or(l.NewPerSecond, limit.DefaultNewPerSecond)
	l.Outbox.Events = cmp.Or(l.Outbox.Events, outbox.DefaultEvents)
	l.Outbox.PerAgent = cmp.Or(l.Outbox.PerAgent, outbox.DefaultPerAgent)
	l.Refreshes = cmp.Or(l.Refreshes, agents.DefaultRefreshes)
	l.Outbox.Bytes = cmp.Or(l.Outbox.Bytes, outbox.DefaultBytes)
}

func (l *Limits) validate(bad func(format string, args ...any)) {
	for flag, value := range map[string]int{
		"--max-connections": l.Connections, "--max-connections-per-address": l.PerAddress, "--new-connections-per-address": l.NewPerSecond,
		"--outbox-events": l.Outbox.Events, "--outbox-events-per-agent": l.Outbox.PerAgent, "--outbox-bytes": int(l.Outbox.Bytes),
	} {
		if value < 0 {
			bad("%s: %d is below 1; leave it out for the default", flag, value)
		}
	}
}

const (
	// apiHandshakes bounds the connections that are in their handshake or first request, and also
	// those that wait for their turn. More would take the open files that tunnels need: the rest
	// waits in the system's queue.
	apiHandshakes = 2048
	// apiPatience is how long a connection waits for its turn. Agents wait for 30 s.
	apiPatience = 25 * time.Second
)

// limited applies the limits to a listener. The listeners of the tunnel and the edge have waiting
// rooms of their own.
func (c *Config) limited(name string, ln net.Listener) net.Listener {
	handshakes, turns := 0, (*limit.Turns)(nil)
	if name == listenerAPI {
		handshakes, turns = apiHandshakes, limit.NewTurns(apiPatience)
	}
	return limit.Listen(ln, limit.Config{
		Name: name, Connections: c.Limits.Connections, PerPeer: c.Limits.PerAddress, NewPerSecond: c.Limits.NewPerSecond,
		Shared: c.Limits.SharedAddresses, Handshakes: handshakes, Turns: turns, Log: c.Log,
	})
}

const (
	listenerAPI    = "api"
	listenerTunnel = "tunnel"
	listenerEdge   = "edge"
	listenerPeer   = "peer"
	listenerHTTPS  = "gateway-https"
	listenerHTTP   = "gateway-http"
	listenerPort   = "gateway-port"
)

// Connections returns the counts of the listeners by name: api, tunnel, edge, peer,
// gateway-https, gateway-http.
func (c *ControlPlane) Connections() map[string]limit.Stats {
	counts := map[string]limit.Stats{}
	for name, l := range map[string]net.Listener{listenerAPI: c.listeners.api, listenerTunnel: c.listeners.tunnel, listenerEdge: c.listeners.edge, listenerPeer: c.listeners.peer, listenerHTTPS: c.listeners.https, listenerHTTP: c.listeners.http} {
		if limited, ok := l.(*limit.Listener); ok {
			counts[name] = limited.Stats()
		}
	}
	return counts
}

// The limits of calls of the HTTPS API at a time.
const (
	maxCalls        = 16384
	maxCallsProven  = 32   // with one certificate of an agent, Runner or operator
	maxCallsUnknown = 4096 // of one address, without a certificate of ours
	// Failed calls of one address: at once, and one more in each interval.
	maxFailures, failureEvery = 1000, 100 * time.Millisecond
	// busyRetry is the delay after which a call beyond its share may be retried.
	busyRetry = time.Second
)

// callLimits bounds the calls of the HTTPS API: by certificate for peers with one of ours, by
// address for all others. Who has a replaced certificate of a name does not use up the share of its
// owner. An address with too many failed authentications has to wait. Peers behind the same address
// that can authenticate do not wait with it.
type callLimits struct {
	authn    *authn.Authenticator
	shares   *limit.Shares
	unknown  *limit.Shares
	failures *limit.Failures[netip.Prefix]
	now      func() time.Time
}

func newCallLimits(p *authn.Authenticator, shared []netip.Prefix) *callLimits {
	return &callLimits{
		authn: p, shares: limit.NewShares(maxCalls, maxCallsProven), unknown: limit.NewShares(maxCalls, maxCallsUnknown),
		failures: limit.NewFailures[netip.Prefix](maxFailures, failureEvery).Except(limit.Within(shared)), now: time.Now,
	}
}

func (l *callLimits) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, proven := l.proven(r)
		shares := l.shares
		from := limit.PeerOfText(r.RemoteAddr)
		if !proven {
			if wait := l.failures.Wait(from, l.now()); wait > 0 {
				refuseCall(w, "too many calls from this address failed", wait)
				return
			}
			key, shares = from.String(), l.unknown
		}
		leave, ok := shares.Enter(key)
		if !ok {
			refuseCall(w, "too many calls are in progress", busyRetry)
			return
		}
		defer leave()
		if proven {
			next.ServeHTTP(w, r)
			return
		}
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		if ww.Status() == http.StatusUnauthorized {
			l.failures.Failed(from, l.now())
		}
	})
}

// proven returns the serial number of an unexpired certificate that our CA signed. The call itself
// checks whether the certificate was revoked or replaced.
func (l *callLimits) proven(r *http.Request) (string, bool) {
	cert := authn.CertificateOf(r.TLS)
	if cert == nil || len(cert.URIs) != 1 {
		return "", false
	}
	for _, role := range []string{ca.RoleAgent, ca.RoleRunner, ca.RoleOperator} {
		if strings.HasPrefix(cert.URIs[0].Path, "/"+role+"/") {
			_, bad := l.authn.Verify(cert, role)
			return cert.SerialNumber.String(), bad == nil
		}
	}
	return "", false
}

func refuseCall(w http.ResponseWriter, detail string, wait time.Duration) {
	problem.Write(w, "", problem.Errorf(problem.TooManyRequests, "wait as long as Retry-After says; if many agents share this address, name it with --shared-address", "%s", detail).WithRetryAfter(wait))
}
