// Package manifests applies raw manifests. It decodes them within limits, and applies them
// server-side in the right order. They form a set, whose inventory is stored in the cluster. The
// package prunes what left the set, and reports what happened to each object.
//
// It uses client-go's dynamic client, and discovers kinds as they are needed with
// controller-runtime's mapper: both are in the agent anyway. fluxcd/pkg/ssa does much of this, but
// takes fields over from other managers by force, which must not happen here. Of fluxcd/cli-utils
// only kstatus is used, which knows when an object is ready and needs only apimachinery. The
// package loads and requests nothing before the first set.
package manifests

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Set names a set: the objects that were applied together, and are pruned when
// they are not applied together any more. Its inventory is in its namespace, which
// is also that of objects that name none.
type Set struct{ Namespace, Name string }

// String returns NAMESPACE/NAME, which is also the set's mark on its objects.
func (s Set) String() string { return s.Namespace + "/" + s.Name }

// Result is what became of each object.
type Result = runnerapi.ApplyResult

// Ref names an object.
type Ref = runnerapi.ManifestRef

// Options are how to apply.
type Options struct {
	DryRun bool // report what would be done, and do nothing
	Prune  bool // delete what left the set; what is not pruned stays in its inventory
	Diff   bool // report each object's changes; values of Secrets are masked
	// Force takes over fields that others have set; objects of others stay refused.
	Force bool
	// Wait is how long to wait until all objects are ready; 0 for not at all.
	Wait time.Duration
	// Where returns where an object was read, for errors; see Documents.Where. It may be nil.
	Where func(*unstructured.Unstructured) string
	// Unread is the error of Read, if the objects are only those that could be read. Nothing is
	// applied then: the call returns this error, with all that is wrong with the objects.
	Unread error
	// Admit is called for each object that is to be applied, or deleted (then with its kind only),
	// and its namespace, which is empty for a cluster-scoped one. It asks the cluster owner's
	// policy. Nil admits all.
	Admit func(namespace string, o runnerapi.ObjectIntent) error
	// By is recorded in the inventory: the sender of the call.
	By string
	// Late is asked before a set is changed, when it is known what it holds: whether the
	// command was carried out and answered meanwhile, by another replica. Nil for no.
	Late func(context.Context) (bool, error)
}

// Config describes where the agent runs, and what it may manage.
type Config struct {
	REST           *rest.Config
	Namespace      string   // the agent's own
	Namespaces     []string // the only ones that it may manage; empty for all
	ServiceAccount string   // the agent's own; pipeops-agent when empty
	// Manage gives the agent its rights in a namespace that a set has made. Nil where
	// sets make none.
	Manage func(ctx context.Context, namespace string) error
	// Workloads reports the state of workloads. If it is nil, their own status has to do.
	Workloads Workloads
}

// Workloads describes how an object is that was just read; false for one that runs no pods.
type Workloads interface {
	Check(ctx context.Context, u *unstructured.Unstructured) (workloadhealth.Report, bool, error)
}

// Applier applies sets. Sets are applied side by side, and each one by one.
type Applier struct {
	config Config
	scope  objectmeta.Scope

	mu     sync.Mutex
	api    *api // made with the first set
	inWork map[Set]bool
}

// New returns an Applier. It makes no requests and loads nothing yet.
func New(c Config) *Applier {
	c.ServiceAccount = cmp.Or(c.ServiceAccount, objectmeta.FieldManager)
	return &Applier{config: c, scope: objectmeta.Scope{Agent: c.Namespace, Only: c.Namespaces}, inWork: map[Set]bool{}}
}

// api is the Kubernetes API for any kind.
type api struct {
	objects dynamic.Interface
	kinds   *kinds
}

func (a *Applier) client() (*api, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.api != nil {
		return a.api, nil
	}
	rc, hc, err := kubeclient.New(a.config.REST)
	if err != nil {
		return nil, err
	}
	made, err := newAPI(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	a.api = made
	return made, nil
}

func newAPI(rc *rest.Config, hc *http.Client) (*api, error) {
	objects, err := dynamic.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, err
	}
	known := &kinds{read: func() (meta.RESTMapper, error) { return apiutil.NewDynamicRESTMapper(rc, hc) }}
	return &api{objects: objects, kinds: known}, known.forget()
}

// on returns where an object of that kind is written and read.
func (c *api) on(m *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.objects.Resource(m.Resource).Namespace(namespace)
	}
	return c.objects.Resource(m.Resource)
}

// enter takes a set for one call. Between replicas of the agent the inventory's
// resourceVersion does that.
func (a *Applier) enter(set Set) (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inWork[set] {
		return nil, busySet(set)
	}
	a.inWork[set] = true
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.inWork, set)
	}, nil
}
