package doctor

import (
	"context"
	"crypto"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// check is one thing that is tried.
type check struct {
	name string
	// needs are the checks without whose success this one has nothing new to report; after are
	// those whose results it uses.
	needs, after []string
	run          func(*exam, context.Context) []Finding
}

// checks are in the order of the report.
var checks = []check{
	{name: "configuration", run: (*exam).configuration},
	{name: "proxy", run: (*exam).proxy},
	{name: "dns", needs: []string{"proxy"}, run: (*exam).dns},
	{name: "tcp", needs: []string{"dns"}, run: (*exam).tcp},
	{name: "clock", needs: []string{"tcp"}, run: (*exam).clock},
	{name: "tls", needs: []string{"tcp"}, after: []string{"identity"}, run: (*exam).tls},
	{name: "control-plane", needs: []string{"tls"}, run: (*exam).controlPlane},
	{name: "identity", after: []string{"kubernetes"}, run: (*exam).identity},
	{name: "registration", needs: []string{"tls", "kubernetes"}, after: []string{"identity"}, run: (*exam).registration},
	{name: "token", after: []string{"tls", "identity"}, run: (*exam).token},
	{name: "tunnel", needs: []string{"proxy"}, after: []string{"identity", "token"}, run: (*exam).tunnel},
	{name: "kubernetes", run: (*exam).kubernetes},
	{name: "resource", needs: []string{"kubernetes"}, run: (*exam).resource},
	{name: "permissions", needs: []string{"kubernetes"}, run: (*exam).permissions},
	{name: "policy", needs: []string{"kubernetes"}, run: (*exam).policy},
	{name: "disk", run: (*exam).disk},
	{name: "memory", run: (*exam).memory},
	{name: "rendering", run: (*exam).rendering},
}

// exam is one examination: its subject and what it has found so far. Only later checks read what a
// check writes.
type exam struct {
	Options
	getenv  func(string) string
	target  *url.URL // the control plane; nil when its URL makes no sense
	proxies func(*url.URL) (*url.URL, error)

	via      *url.URL // the proxy to the control plane; by proxy
	id       *identity.Identity
	asked    crypto.PublicKey          // of the request that is not answered yet; nil without one
	endpoint controlapi.TunnelEndpoint // of the identity or the token

	mu     sync.Mutex
	failed map[string]bool
}

func newExam(opts Options) *exam {
	e := &exam{Options: opts, getenv: os.Getenv, proxies: httpproxy.FromEnvironment().ProxyFunc(), failed: map[string]bool{}}
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Timeout == 0 {
		e.Timeout = defaultTimeout
	}
	if target, err := controlapi.ParseURL(opts.Config.ControlPlaneURL); err == nil {
		e.target = target
	}
	return e
}

// do runs a check, unless one that it needs has failed.
func (e *exam) do(ctx context.Context, c check) []Finding {
	if blocker := e.blocker(c); blocker != "" {
		e.note(c.name)
		return one(c.name, Skipped, "because of "+blocker, "")
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	findings := c.run(e, ctx)
	for i := range findings {
		if findings[i].Check = c.name; findings[i].Status == Failed {
			e.note(c.name)
		}
	}
	return findings
}

func (e *exam) blocker(c check) string {
	for _, other := range c.needs {
		if e.hasFailed(other) {
			return other
		}
	}
	return ""
}

// hasFailed reports whether a check has failed, or could not run because another one has failed.
func (e *exam) hasFailed(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed[name]
}

func (e *exam) note(failed string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed[failed] = true
}

func one(name string, status Status, detail, fix string) []Finding {
	return []Finding{{Check: name, Status: status, Detail: detail, Fix: fix}}
}

func ok(detail string) []Finding           { return one("", OK, detail, "") }
func skipped(detail string) []Finding      { return one("", Skipped, detail, "") }
func warning(detail, fix string) []Finding { return one("", Warning, detail, fix) }
func failed(detail, fix string) []Finding  { return one("", Failed, detail, fix) }

// failure takes an error apart that knows its fix.
func failure(err error, fix string) []Finding {
	var (
		p *controlapi.Error
		t *tunnel.Error
	)
	switch {
	case errors.As(err, &p):
		return failed(p.Detail, p.Fix)
	case errors.As(err, &t):
		return failed(t.Op+" "+t.Where+": "+t.Err.Error(), t.Action)
	case errors.Is(err, context.DeadlineExceeded):
		return failed("no answer in time", fix)
	}
	if detail, own, found := strings.Cut(err.Error(), " (fix: "); found {
		return failed(detail, strings.TrimSuffix(own, ")"))
	}
	return failed(err.Error(), fix)
}
