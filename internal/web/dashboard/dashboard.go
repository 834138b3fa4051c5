package dashboard

import (
	"context"
	"embed"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

//go:embed templates/*.html
var files embed.FS

// Options say what the pages are about. What a function cannot find out it returns as an error,
// which its page shows.
type Options struct {
	Kubernetes *rest.Config
	Namespace  string // the agent's own
	Place      string // what the header names: a context of the kubeconfig, or a host
	Version    string // of this program
	Log        zerolog.Logger
	Now        func() time.Time

	Audit audit.Store
	// Acts gets a record of each change that the dashboard makes; nil for none.
	Acts       audit.Store
	PolicyFile string // where the policy is a file of this machine; empty for the ConfigMap
	// Readiness returns what the agent of this machine reports; nil where the agent runs in pods.
	Readiness  func(ctx context.Context) (Readiness, error)
	Doctor     func(ctx context.Context) (doctor.Report, error)
	Bundle     func(ctx context.Context, file string, report doctor.Report) error
	Components func(ctx context.Context) ([]components.Status, error)
	Updates    func(ctx context.Context) (update.Record, error)
}

// Dashboard serves the pages.
type Dashboard struct {
	*site
	sessions *web.Sessions
	samples  *samples
}

// maxStreams is how many pages may follow the cluster at a time.
const maxStreams = 64

const signIn = "start the program again and open the link that it prints; each link works once"

// nav is the order of the pages.
var nav = []web.Link{
	{Path: "/", Text: "Overview"}, {Path: "/apps", Text: "Apps"}, {Path: "/routes", Text: "Routes"},
	{Path: "/nodes", Text: "Nodes"}, {Path: "/policy", Text: "Policy"}, {Path: "/audit", Text: "Audit log"},
	{Path: "/components", Text: "Components"}, {Path: "/updates", Text: "Updates"}, {Path: "/doctor", Text: "Doctor"},
}

// New prepares the pages. It makes no requests yet.
func New(opts Options) (*Dashboard, error) {
	c, err := newCluster(opts)
	if err != nil {
		return nil, err
	}
	return newDashboard(opts, c)
}

func newDashboard(opts Options, c *cluster) (*Dashboard, error) {
	pages, err := web.NewPages(web.Pages{Product: "PipeOps dashboard", Place: opts.Place, Version: opts.Version, Nav: nav, Search: "/apps", SignIn: signIn, Restart: "pipeops-agent dashboard"}, files)
	if err != nil {
		return nil, err
	}
	return &Dashboard{samples: newSamples(c.usage, opts.Now), site: &site{opts: opts, cluster: c, pages: pages, streams: web.NewStreams(maxStreams), outages: newOutages(opts.Now)}}, nil
}

// Serve serves the pages on a listener on loopback until ctx ends. It calls ready with the address
// that signs a browser in, once.
func (d *Dashboard) Serve(ctx context.Context, ln net.Listener, ready func(url string)) error {
	address, ok := ln.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return fmt.Errorf("the dashboard serves on loopback only, and not on %s", ln.Addr())
	}
	handler := d.Handler(address.Port)
	var sampling sync.WaitGroup
	defer sampling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sampling.Go(func() { d.samples.run(ctx) })
	ready(d.Link(ln.Addr().String()))
	return web.Serve(ctx, ln, handler, d.opts.Log)
}

// Handler returns the handler of all requests to a port of loopback.
func (d *Dashboard) Handler(port int) http.Handler {
	d.sessions = web.NewSessions(d.opts.Now)
	hosts := map[string]bool{fmt.Sprintf("127.0.0.1:%d", port): true, fmt.Sprintf("localhost:%d", port): true, fmt.Sprintf("[::1]:%d", port): true}
	return web.NewGuard(web.Guard{
		Hosts: func(host string) bool { return hosts[host] }, Sessions: d.sessions, Cookie: fmt.Sprintf("pipeops-dashboard-%d", port), Pages: d.pages, Next: d.routes(), Now: d.opts.Now,
	})
}

// Link returns an address that signs one browser in, once.
func (d *Dashboard) Link(address string) string {
	return "http://" + address + web.EnterPath + "?token=" + d.sessions.Invite()
}

func (d *Dashboard) routes() http.Handler {
	policy, doctor := &policyPages{d.site}, &doctorPages{d.site}
	apps := &appPages{d.site, newHistories(d.cluster.metrics, d.opts.Now), d.samples}
	shown := &clusterPages{d.site}
	handlers := map[string]web.Handler{
		"GET /policy/pause":   policy.askPause,
		"POST /policy/pause":  policy.pause,
		"POST /approve":       policy.approve,
		"GET /doctor":         doctor.doctor,
		"POST /doctor":        doctor.doctor,
		"POST /doctor/bundle": doctor.bundle,

		"GET /live/apps/{namespace}/{name}/logs": apps.logsLive,
		"GET /apps/{namespace}/{name}/logs.txt":  apps.downloadLog,
		"GET /apps/{namespace}/{name}/{action}":  apps.askChange,
		"POST /apps/{namespace}/{name}/{action}": apps.change,
	}
	(&overviewPage{d.site, policy}).overview().at(handlers, "/{$}")
	apps.apps().at(handlers, "/apps")
	apps.app().at(handlers, "/apps/{namespace}/{name}")
	apps.logs().at(handlers, "/apps/{namespace}/{name}/logs")
	policy.policy().at(handlers, "/policy")
	shown.routes().at(handlers, "/routes")
	shown.nodes().at(handlers, "/nodes")
	shown.audit().at(handlers, "/audit")
	handlers["GET /audit"] = shown.auditPage
	shown.components().at(handlers, "/components")
	shown.updates().at(handlers, "/updates")
	mux := http.NewServeMux()
	for pattern, handler := range handlers {
		mux.Handle(pattern, d.pages.Handle(handler))
	}
	mux.Handle("/", d.pages.Handle(func(http.ResponseWriter, *http.Request) error { return web.NotFound() }))
	return mux
}
