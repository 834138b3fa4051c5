package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/direct"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// How hosts are reached that have an endpoint.
const (
	ModeAuto   = "auto" // directly while that is proven, and through the tunnel otherwise
	ModeTunnel = controlapi.ModeTunnel
	ModeDirect = controlapi.ModeDirect // directly, or not at all
)

// Direct configures how clusters are reached at their own load balancers.
type Direct struct {
	// Mode is ModeAuto if empty.
	Mode string
	// Allowed are networks that count as public. Refused are networks to which nothing connects.
	Allowed, Refused []netip.Prefix
	// Port is that of HTTPS there; 443 if zero.
	Port   int
	Timing direct.Timing
	// Changed is called when modes may have changed; it may be nil, and must not block.
	Changed func()
}

// errNoWay means that a host is to be reached directly alone, and cannot be.
var errNoWay = errors.New("the host's endpoint is not proven")

func (g *Gateway) newProber() *direct.Prober {
	cfg := g.cfg.Direct
	if cfg.Mode == ModeTunnel {
		return nil
	}
	return direct.New(direct.Config{
		Key: g.keyOf, Allowed: cfg.Allowed, Refused: cfg.Refused, Port: cfg.Port, Timing: cfg.Timing, Changed: g.modesChanged,
		Log: g.cfg.Log,
	})
}

// recognizable returns a TLS configuration by which other gateways recognize this one.
func recognizable(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.NextProtos = slices.Concat([]string{gatewaywire.ProtocolGateway}, cfg.NextProtos)
	return cfg
}

// probe proves endpoints until the context ends.
func (g *Gateway) probe(ctx context.Context) error {
	if g.prober == nil {
		return nil
	}
	return g.prober.Run(ctx)
}

// Follow takes the endpoints and the ports of the table. It is called after each refresh.
func (g *Gateway) Follow() {
	g.ports.due.Raise()
	if g.prober != nil {
		g.prober.Set(g.cfg.Table.endpoints())
		g.modesChanged()
	}
}

// modesChanged counts the hosts by mode, and passes on that there may be a change.
func (g *Gateway) modesChanged() {
	states, direct := g.prober.States(), 0
	for _, s := range states {
		if s.Direct {
			direct++
		}
	}
	g.cfg.Metrics.modes.WithLabelValues(ModeDirect).Set(float64(direct))
	g.cfg.Metrics.modes.WithLabelValues(ModeTunnel).Set(float64(len(states) - direct))
	if g.cfg.Direct.Changed != nil {
		g.cfg.Direct.Changed()
	}
}

// Modes returns the state of each host with an endpoint that was tried here.
func (g *Gateway) Modes() []direct.State {
	if g.prober == nil {
		return nil
	}
	return g.prober.States()
}

// RoundTrip sends a request to the cluster's endpoint if that is proven, and to the agent
// otherwise. What has not arrived there, or may arrive twice, is sent to the agent then.
func (g *Gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	v := visitOf(r.Context())
	if way := g.way(v, r); way != nil {
		v.mode = ModeDirect
		resp, unsent, err := way.RoundTrip(r)
		if err == nil || !unsent {
			return resp, err
		}
		g.cfg.Metrics.fallbacks.Inc()
	}
	if g.cfg.Direct.Mode == ModeDirect && v.host.Endpoint != "" && !gatewaywire.Looped(r.Header) {
		return nil, errNoWay
	}
	v.mode = ModeTunnel
	return g.transport.RoundTrip(r)
}

// way returns how a request gets to the cluster's endpoint; nil if it goes through the tunnel. What
// comes from a gateway does not go to another one.
func (g *Gateway) way(v *visit, r *http.Request) *direct.Way {
	if g.prober == nil || v.host.Endpoint == "" || gatewaywire.Looped(r.Header) {
		return nil
	}
	return g.prober.Way(v.host.Name, v.host.AgentID)
}

// keyOf asks an agent which key its cluster presents for a host.
func (g *Gateway) keyOf(ctx context.Context, agentID, host string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agentID+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = host
	r.Header.Set(gatewaywire.HeaderKeyWanted, "1")
	resp, err := g.transport.RoundTrip(r)
	if err != nil {
		return "", fmt.Errorf("the agent cannot be asked for its cluster's key: %w", err)
	}
	_ = resp.Body.Close()
	if key := resp.Header.Get(gatewaywire.HeaderKey); key != "" {
		return key, nil
	}
	return "", errors.New("the agent does not reach the endpoint: " +
		printable.Line(cmp.Or(resp.Header.Get(gatewaywire.HeaderKeyReason), resp.Header.Get(gatewaywire.HeaderFailed)), false))
}

// TunnelOnly reports whether no host is reached directly.
func (g *Gateway) TunnelOnly() bool { return g.prober == nil }
