package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// The limits of clients at the two ports.
const (
	portConnections = 64
	portPerPeer     = 16
	scrapesAtATime  = 4
	headerTimeout   = 5 * time.Second
	scrapeTimeout   = 10 * time.Second
	// profileTimeout is for /debug/pprof/profile?seconds=N, whose answer comes when it is done.
	profileTimeout = 2 * time.Minute
	idleTimeout    = time.Minute
	stopTimeout    = 2 * time.Second
	maxHeader      = 16 << 10
)

// PortsConfig defines what is served where. Both ports are plain HTTP without authentication: for
// the machine itself, or a protected network.
type PortsConfig struct {
	// Metrics is the address of /metrics, host:port; empty for none.
	Metrics string
	// Pprof is the address of /debug/pprof/; empty for none. Without a host it is on this machine's
	// loopback: a client that reads profiles learns how the program works inside, and makes it
	// work.
	Pprof string
	// MetricsName and PprofName are the names of the settings, for errors.
	MetricsName, PprofName string
	Gatherer               prometheus.Gatherer
	// Also are further handlers at the port of /metrics, by their pattern. They authenticate their
	// clients themselves.
	Also map[string]http.Handler
	Log  zerolog.Logger
}

// Ports are the open ports. The zero value has none.
type Ports struct {
	metrics, pprof net.Listener
	gatherer       prometheus.Gatherer
	also           map[string]http.Handler
}

// CheckAddress returns what is wrong with an address of PortsConfig.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is not host:port (fix: for example 127.0.0.1:9090, or leave it empty)", address)
	}
	return nil
}

// Open opens the configured ports. Call Close if Run is not called.
func Open(ctx context.Context, cfg PortsConfig) (*Ports, error) {
	p := &Ports{gatherer: cfg.Gatherer, also: cfg.Also}
	for _, port := range []struct {
		to            *net.Listener
		name, address string
	}{{&p.metrics, cfg.MetricsName, cfg.Metrics}, {&p.pprof, cfg.PprofName, onLoopback(cfg.Pprof)}} {
		if port.address == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", port.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w (fix: choose a free port)", port.name, err), p.Close())
		}
		cfg.Log.Info().Str("setting", port.name).Stringer("address", l.Addr()).Msg("port is open: plain HTTP, without authentication")
		*port.to = limit.Listen(l, limit.Config{
			Name: port.name, Connections: portConnections, PerPeer: portPerPeer, NewPerSecond: portPerPeer, Log: cfg.Log,
		})
	}
	return p, nil
}

// onLoopback adds this machine's loopback host to an address without a host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// Addrs returns the listening addresses; nil for a closed port.
func (p *Ports) Addrs() (metrics, pprof net.Addr) {
	if p.metrics != nil {
		metrics = p.metrics.Addr()
	}
	if p.pprof != nil {
		pprof = p.pprof.Addr()
	}
	return metrics, pprof
}

// Run serves until the context ends.
func (p *Ports) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if p.metrics != nil {
		group.Go(func() error { return serve(ctx, p.metrics, p.handler(), scrapeTimeout) })
	}
	if p.pprof != nil {
		group.Go(func() error { return serve(ctx, p.pprof, profiles(), profileTimeout) })
	}
	return group.Wait()
}

// Close closes the open ports.
func (p *Ports) Close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, l := range []net.Listener{p.metrics, p.pprof} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// handler serves what is at the port of /metrics.
func (p *Ports) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", Handler(p.gatherer))
	for pattern, h := range p.also {
		mux.Handle(pattern, h)
	}
	return mux
}

// Handler serves only /metrics. It leaves out a number that cannot be read: the others are needed
// most when something is wrong.
func Handler(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtATime, Timeout: scrapeTimeout,
	}))
	return mux
}

// profiles serves Go's profiles, except the command line.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func serve(ctx context.Context, l net.Listener, h http.Handler, timeout time.Duration) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: timeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
	}
	if err := httpserver.Until(ctx, server, stopTimeout, func() error { return server.Serve(l) }); err != nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
