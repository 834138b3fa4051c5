package console

import (
	"context"
	"embed"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

//go:embed templates/*.html
var files embed.FS

// Cookie is the name of the session's cookie. Browsers take one with this prefix only if it is
// secure, and of this host alone.
const Cookie = "__Host-pipeops-console"

// maxStreams is how many pages may follow the fleet at a time.
const maxStreams = 256

// lookAgain is how often an open page shows how long ago something was.
const lookAgain = 15 * time.Second

const signIn = "run `pipeops-controlplane console --credentials FILE` and open the link that it prints; each link works once"

// Options say what the pages are about.
type Options struct {
	API      operatorapi.Target
	Sessions web.Keeper
	// Logs reads an App's log as the Runner as which the caller in the context acts, and ReadsApps
	// reports why the caller may not.
	Logs      func(ctx context.Context, in operatorapi.AppLog, emit func(runnerapi.LogLine) error) error
	ReadsApps func(ctx context.Context) error
	// Elsewhere is the identity provider; nil for none.
	Elsewhere web.Elsewhere
	// Visitors sign in at Elsewhere for Apps; nil for none.
	Visitors web.Visitors
	// Broker reports that announcements have a broker. Without one there are no dead letters.
	Broker bool
	// Hosts reports whether a Host header is one of the control plane's.
	Hosts   func(host string) bool
	Place   string // what the header names: the control plane's address
	Version string
	Now     func() time.Time
	// Watch calls changed after changes of the database, until the context ends.
	Watch func(ctx context.Context, changed func()) error
}

// Console serves the pages.
type Console struct {
	http.Handler
	*site
}

// nav is the order of the pages.
var nav = []web.Link{
	{Path: "/console/", Text: "Fleet"}, {Path: "/console/enrolment", Text: "Enrolment"}, {Path: "/console/runners", Text: "Runners"},
	{Path: "/console/hosts", Text: "Public hosts"}, {Path: "/console/webhooks", Text: "Webhooks"},
	{Path: "/console/announcements", Text: "Announcements"}, {Path: "/console/releases", Text: "Releases"}, {Path: "/console/ca", Text: "Certificates"},
	{Path: replicasPath, Text: "Control planes"},
	{Path: "/console/operators", Text: "Operators", Needs: operatorapi.ListOperators.ID},
	{Path: "/console/audit", Text: "Audit log", Needs: operatorapi.GetOperatorAudit.ID},
}

// New returns the pages.
func New(opts Options) (*Console, error) {
	elsewhere := ""
	if opts.Elsewhere != nil {
		elsewhere = opts.Elsewhere.Name()
	}
	pages, err := web.NewPages(web.Pages{
		Product: "PipeOps console", Place: opts.Place, Version: opts.Version, Nav: nav, Base: operatorapi.ConsolePath, Search: searchPath, SignIn: signIn,
		Elsewhere: elsewhere, May: func(ctx context.Context) func(string) bool { return visitor(ctx).may },
	}, files)
	if err != nil {
		return nil, err
	}
	c := &Console{site: &site{opts: opts, pages: pages, streams: web.NewStreams(maxStreams)}}
	c.Handler = web.NewGuard(web.Guard{
		Hosts: opts.Hosts, Sessions: opts.Sessions, Cookie: Cookie, Form: true, Elsewhere: opts.Elsewhere, Visitors: opts.Visitors, Pages: pages, Next: c.routes(), Now: opts.Now,
	})
	return c, nil
}

// Run keeps open pages up to date until ctx ends, then ends their streams.
func (c *Console) Run(ctx context.Context) error {
	defer c.changes.end()
	watched := make(chan error, 1)
	go func() { watched <- c.opts.Watch(ctx, c.changes.notify) }()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		select {
		case err := <-watched:
			return err
		case <-again.C:
			c.changes.notify()
		}
	}
}

func (c *Console) routes() http.Handler {
	fleet, apps, changing := &fleetPages{c.site}, &appPages{c.site}, &changePages{c.site}
	access, plane := &accessPages{c.site}, &controlPlanePages{c.site}
	mux := http.NewServeMux()
	for pattern, handler := range map[string]web.Handler{
		"/{$}": fleet.fleet, "/live/fleet": fleet.fleetLive,
		"/search": fleet.search, "/agents/{name}": fleet.agent, "/live/agents/{name}": fleet.agentLive, "/agents/{name}/audit": fleet.agentAudit,
		"/agents/{name}/nodes": fleet.nodes, "/live/agents/{name}/nodes": fleet.nodesLive,
		"/agents/{name}/objects/{kind}": fleet.objects,
		"/agents/{name}/app":            apps.app, "/live/agents/{name}/app": apps.appLive,
		"/agents/{name}/app/logs": apps.logs, "/live/agents/{name}/app/logs": apps.logsLive, "/agents/{name}/app/logs.txt": apps.downloadLog,
		"/enrolment": access.enrolment, "/live/tokens/{name}": access.tokenLive, "/runners": access.runners, "/operators": access.operators, "/audit": access.audit,
		"/hosts": plane.hosts, "/live/hosts": plane.hostsLive, "/webhooks": plane.webhooks, "/webhooks/{name}": plane.webhook,
		"/announcements": plane.announcements, "/releases": plane.releases, "/ca": plane.ca,
		"/replicas": plane.replicas, "/live/replicas": plane.replicasLive,
	} {
		mux.Handle("GET "+operatorapi.ConsolePath+pattern, c.pages.Handle(handler))
	}
	for path, change := range changes() {
		mux.Handle("GET "+operatorapi.ConsolePath+path, c.pages.Handle(changing.ask(change)))
		mux.Handle("POST "+operatorapi.ConsolePath+path, c.pages.Handle(changing.change(change)))
	}
	deploying := &deployPages{c.site}
	mux.Handle("GET "+operatorapi.ConsolePath+deployPath, c.pages.Handle(deploying.open))
	mux.Handle("POST "+operatorapi.ConsolePath+deployPath, c.pages.Handle(deploying.sent))
	mux.Handle("/", c.pages.Handle(func(http.ResponseWriter, *http.Request) error { return web.NotFound() }))
	return mux
}
