package helm

import (
	"context"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxLookup bounds the answer to one lookup of a template.
const maxLookup = 2 << 20

// lookup returns what templates look up, with a getter's client for templates, if the policy allows
// that. It passes the cluster's answer on unchanged.
func (g *getter) lookup(ctx context.Context, q render.Question, admit func([]runnerapi.ObjectIntent) error) ([]byte, error) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	mapping, err := g.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return nil, problem.Errorf(problem.Invalid, "install what brings this kind first, or ask .Capabilities.APIVersions before",
			"it looks up a %.100q of %.100q, and the cluster has no such kind", q.Kind, q.APIVersion)
	}
	if err != nil {
		return nil, kubeproblem.From(err, "finding kind "+q.Kind)
	}
	if err := admitLookup(q, denylist.Kind(mapping.GroupVersionKind), admit); err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(g.Config)
	if err != nil {
		return nil, err
	}
	get := client.RESTClient().Get()
	if group := mapping.Resource.GroupVersion(); group.Group == "" {
		get = get.AbsPath("/api", group.Version)
	} else {
		get = get.AbsPath("/apis", group.Group, group.Version)
	}
	if q.Namespace != "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		get = get.Namespace(q.Namespace)
	}
	get = get.Resource(mapping.Resource.Resource).SetHeader("Accept", "application/json")
	if q.Name != "" {
		get = get.Name(q.Name)
	}
	object, err := get.DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, kubeproblem.From(err, "looking up a "+q.Kind)
}

// admitLookup asks the policy about what a template would see.
func admitLookup(q render.Question, kind string, admit func([]runnerapi.ObjectIntent) error) error {
	if admit == nil {
		return nil
	}
	name := "all"
	if q.Name != "" {
		name = q.Name
	}
	return admit([]runnerapi.ObjectIntent{{Location: fmt.Sprintf("lookup of %.100s %.253s", kind, name), Kind: kind, LookedUp: true}})
}

// measured is the body of an answer of which there may be too much.
type measured struct {
	io.ReadCloser
	left int
}

func (b *measured) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, problem.Errorf(problem.TooLarge, "look up one by its name", "the chart looks up more than %d MiB at once", maxLookup>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// limited returns an answer to a template.
func limited(resp *http.Response, err error) (*http.Response, error) {
	if err == nil {
		resp.Body = &measured{resp.Body, maxLookup}
	}
	return resp, err
}
