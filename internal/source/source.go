// Package source follows Git repositories: it keeps an App, or a set of manifests, in a namespace
// as a repository has it. Each followed source is a custom resource in that namespace, so it
// outlives the agent. The leader checks the repositories, two at a time.
//
// Package source/git fetches files, and package render turns them into manifests, in a process of
// its own. Others apply the result, in the name of the Runner that put the source, and within what
// the cluster owner's policy allows that Runner at that moment.
package source

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

// workers is how many sources are handled at once: each may use what git.DefaultLimits and
// render.Memory allow.
const workers = 2

// Apps deploys what a source of type app brings.
type Apps interface {
	Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error)
}

// Manifests applies what the other types bring.
type Manifests interface {
	// Read decodes a stream of manifests. where returns an object's place in the stream. With an
	// error, objects are those that could be read.
	Read(r io.Reader) (objects []*unstructured.Unstructured, where func(*unstructured.Unstructured) string, err error)
	// Apply applies a set. An error means that it was not applied, or not completely.
	Apply(ctx context.Context, set Set) error
	// Get returns the state of a source's objects.
	Get(ctx context.Context, source runnerapi.Key) (runnerapi.ManifestSet, error)
}

// Set is a set of manifests.
type Set struct {
	Namespace, Name string
	Objects         []*unstructured.Unstructured
	DryRun, Prune   bool
	Force           bool // take over fields that others have set
	// Unread is the error of what could not be read. Apply returns it, with all that is wrong with
	// the objects, and applies nothing.
	Unread error
	// Where returns an object's origin.
	Where func(*unstructured.Unstructured) string
	// Admit is called for each object that is to be applied or deleted.
	Admit func(namespace string, o runnerapi.ObjectIntent) error
	By    string // the Runner that put the source
}

// Config configures a Keeper.
type Config struct {
	REST       *rest.Config
	Namespace  string   // the agent's own
	Namespaces []string // the only ones that it may manage; empty for all
	Apps       Apps
	Manifests  Manifests // nil if this agent applies none
	Builds     Builds    // nil if it builds nothing
	// Decide is the cluster owner's policy. Nil allows all, which is for tests only.
	Decide func(runnerapi.Intent) error
	// Audit records what was brought. It may be nil.
	Audit func(runnerapi.AuditRecord)
	// Before stores the record that something is about to be brought, if the policy requires that.
	// An error means that it must not be brought. It may be nil.
	Before func(context.Context, runnerapi.AuditRecord) error
	// Leads reports whether this replica follows sources.
	Leads func() bool
	// Heard waits until the revoked Runners are known, within bounds. It may be nil.
	Heard func(context.Context)
	// Render is the command that renders; see render.Process.
	Render []string
	// Proxy returns the proxy for HTTPS; nil means none.
	Proxy func(*url.URL) (*url.URL, error)
	// Guard decides to which hosts and addresses the agent connects for repositories.
	Guard  egress.Guard
	Limits git.Limits // git.DefaultLimits when zero
	Log    zerolog.Logger
}

// Keeper follows sources, and handles the calls about them.
type Keeper struct {
	Config
	now  func() time.Time
	wake chan struct{}
	work workqueue.TypedDelayingInterface[runnerapi.Key]

	mu      sync.Mutex
	api     *api                            // made when it is used first
	built   map[runnerapi.Key]runnerapi.Key // the builds of sources, to be removed with them
	revoked []string                        // Runners
	stores  []cache.Store                   // the sources that are followed
}

type api struct {
	objects   dynamic.Interface
	discovery *discovery.DiscoveryClient
}

var _ server.Sources = (*Keeper)(nil)

// New returns a Keeper. It makes no requests before Run or a call.
func New(c Config) *Keeper {
	if c.Limits == (git.Limits{}) {
		c.Limits = git.DefaultLimits
	}
	return &Keeper{Config: c, now: time.Now, wake: make(chan struct{}, 1), work: workqueue.NewTypedDelayingQueue[runnerapi.Key]()}
}

// Wake makes a replica that has just become the leader check whether there is anything to follow.
// It does not block.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *Keeper) client() (*api, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.api != nil {
		return k.api, nil
	}
	rc, hc, err := kubeclient.New(k.REST)
	if err != nil {
		return nil, err
	}
	made, err := newAPI(rc, hc)
	if err != nil {
		return nil, err
	}
	k.api = made
	return made, nil
}

func newAPI(rc *rest.Config, hc *http.Client) (*api, error) {
	objects, err := dynamic.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(rc, hc)
	return &api{objects, d}, err
}

func (k *Keeper) scope() managed.Scope {
	return managed.Scope{Agent: k.Namespace, Only: k.Namespaces}
}
