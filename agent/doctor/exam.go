package doctor

import (
	"context"
	"crypto"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// check is one thing that is tried.
type check struct {
	name string
	// needs are the checks without whose success this one has nothing new to report; after are
	// those whose results it uses.
	needs, after []string
	// running marks what a running agent repeats: what its heartbeats do not prove, without a
	// connection to the control plane.
	running bool
	run     func(context.Context) []Finding
}

// checks returns the checks in the order of the report.
func (e *exam) checks() []check {
	return []check{
		{name: "configuration", run: e.configuration},
		{name: "proxy", run: e.network.proxy},
		{name: "dns", needs: []string{"proxy"}, run: e.network.dns},
		{name: "tcp", needs: []string{"dns"}, run: e.network.tcp},
		{name: "clock", needs: []string{"tcp"}, run: e.network.clock},
		{name: "tls", needs: []string{"tcp"}, after: []string{"identity"}, run: e.network.tls},
		{name: "control-plane", needs: []string{"tls"}, run: e.network.controlPlane},
		{name: "identity", after: []string{"kubernetes"}, running: true, run: e.admission.identity},
		{name: "registration", needs: []string{"tls", "kubernetes"}, after: []string{"identity"}, run: e.admission.registration},
		{name: "token", after: []string{"tls", "identity"}, running: true, run: e.admission.token},
		{name: "tunnel", needs: []string{"proxy"}, after: []string{"identity", "token"}, run: e.network.tunnel},
		{name: "kubernetes", running: true, run: e.cluster.kubernetes},
		{name: "resource", needs: []string{"kubernetes"}, running: true, run: e.cluster.resource},
		{name: "permissions", needs: []string{"kubernetes"}, running: true, run: e.cluster.permissions},
		{name: "policy", needs: []string{"kubernetes"}, running: true, run: e.cluster.policy},
		{name: "components", needs: []string{"kubernetes"}, run: e.cluster.components},
		{name: "public", needs: []string{"registration", "policy"}, run: e.admission.public},
		{name: "disk", running: true, run: e.machine.disk},
		{name: "memory", running: true, run: e.machine.memory},
		{name: "rendering", running: true, run: e.machine.rendering},
	}
}

// exam is one examination: the checks by their subject, and which of them have failed.
type exam struct {
	Options
	network   *network
	admission *admission
	cluster   *cluster
	machine   machine
	failures  *failures
}

// learned is what checks have found out. Only later checks read what a check writes.
type learned struct {
	id       *identity.Identity
	asked    crypto.PublicKey          // of the request that is not answered yet; nil without one
	endpoint controlapi.TunnelEndpoint // of the identity or the token
}

// network checks the way to the control plane, and to its tunnel's nodes.
type network struct {
	Options
	*learned
	target  *url.URL // the control plane; nil when its URL makes no sense
	proxies proxy.Func
	via     *url.URL // the proxy to the control plane; by proxy
}

// admission checks whether the control plane admits this agent, and the public to its hosts.
type admission struct {
	Options
	*learned
	network  *network
	cluster  *cluster
	failures *failures
}

// cluster checks the Kubernetes API, what is installed there, and the agent's rights.
type cluster struct{ Options }

func newExam(opts Options) *exam {
	opts = opts.withDefaults()
	learned, cluster, failures := &learned{}, &cluster{opts}, &failures{names: map[string]bool{}}
	network := &network{Options: opts, learned: learned, proxies: proxy.FromEnvironment()}
	if target, err := controlapi.ParseURL(opts.Config.ControlPlaneURL); err == nil {
		network.target = target
	}
	return &exam{
		Options: opts, network: network, cluster: cluster, machine: machine{opts.Config.StateDir}, failures: failures,
		admission: &admission{Options: opts, learned: learned, network: network, cluster: cluster, failures: failures},
	}
}

// do runs a check, unless one that it needs has failed.
func (e *exam) do(ctx context.Context, c check) []Finding {
	if blocker := e.blocker(c); blocker != "" {
		e.failures.note(c.name)
		return one(c.name, Skipped, "because of "+blocker, "")
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	findings := c.run(ctx)
	for i := range findings {
		if findings[i].Check = c.name; findings[i].Status == Failed {
			e.failures.note(c.name)
		}
	}
	return findings
}

func (e *exam) blocker(c check) string {
	for _, other := range c.needs {
		if e.failures.has(other) {
			return other
		}
	}
	return ""
}

// failures are the checks that have failed, or could not run because another one has failed.
type failures struct {
	mu    sync.Mutex
	names map[string]bool
}

func (f *failures) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[name]
}

func (f *failures) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[name] = true
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
		// The other transport's error often ends with the same fix.
		return failed(t.Op+" "+t.Where+": "+strings.TrimSuffix(t.Err.Error(), "; "+t.Action), t.Action)
	case errors.Is(err, context.DeadlineExceeded):
		return failed("no answer in time", fix)
	}
	if detail, own, found := strings.Cut(err.Error(), " (fix: "); found {
		return failed(detail, strings.TrimSuffix(own, ")"))
	}
	return failed(err.Error(), fix)
}
