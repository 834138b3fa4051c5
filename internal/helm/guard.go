package helm

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// guard is the transport of Helm's requests to the Kubernetes API. It restricts them to the
// release's namespace, regardless of the chart, and ends them with the command: most of the SDK
// takes no context.
type guard struct {
	http.RoundTripper
	ctx       context.Context
	namespace string
	render    bool // templates may look things up, but only in the namespace
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.allows(r); err != nil {
		return nil, err
	}
	if g.ctx.Err() != nil {
		return nil, context.Cause(g.ctx)
	}
	// The command's context carries the request's user; the SDK's own context does not.
	ctx, cancel := context.WithCancelCause(g.ctx)
	// Never cancelled here: the body is read later. The command's end cancels it.
	context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	resp, err := g.RoundTripper.RoundTrip(r.WithContext(ctx))
	if _, resource := pathOf(r.URL.Path); g.render && resource {
		return limited(resp, err)
	}
	return resp, err
}

func (g guard) allows(r *http.Request) error {
	namespace, resource := pathOf(r.URL.Path)
	switch {
	case !resource || namespace == g.namespace:
	case namespace != "":
		return outside("reaches into namespace "+namespace, g.namespace)
	case g.render:
		return outside("looks up objects outside of its namespace", g.namespace)
	}
	if g.render && resource && r.Method != http.MethodGet {
		return outside("changes something while it is rendered", g.namespace)
	}
	return nil
}

func outside(what, namespace string) error {
	return problem.Errorf(problem.Forbidden, "a chart works in the namespace of its release alone, here "+namespace, "the chart %s", what)
}

// pathOf returns the namespace in a path of the Kubernetes API, and whether the path is one of a
// resource, unlike discovery.
func pathOf(path string) (namespace string, resource bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts { // after the server's path prefix, if it has one
		skip := map[string]int{"api": 2, "apis": 3}[p]
		if skip == 0 {
			continue
		}
		if parts = parts[i:]; len(parts) <= skip {
			return "", false
		}
		if parts = parts[skip:]; parts[0] == "namespaces" && len(parts) > 2 {
			return parts[1], true
		}
		return "", true
	}
	return "", false
}

// getter gives Helm clients that use a guard.
type getter struct{ kubeclient.Getter }

func newGetter(ctx context.Context, base *rest.Config, namespace string) (*getter, error) {
	g, err := kubeclient.NewGetter(guarded(ctx, base, namespace, false), namespace)
	if err != nil {
		return nil, err
	}
	return &getter{*g}, nil
}

func guarded(ctx context.Context, base *rest.Config, namespace string, render bool) *rest.Config {
	rc := rest.CopyConfig(base)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{next, ctx, namespace, render} })
	rc.Timeout = requestTimeout // no request here is a watch
	return rc
}

// forTemplates returns a getter for template lookups. It shares the discovered kinds, because a
// chart may add some.
func (g *getter) forTemplates(ctx context.Context, base *rest.Config) *getter {
	narrow := *g
	narrow.Config = guarded(ctx, base, g.Namespace, true)
	return &narrow
}
