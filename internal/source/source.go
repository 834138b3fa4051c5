// Package source follows Git repositories: it keeps an App, or a set of manifests, in a namespace
// as a repository has it. Each followed source is a custom resource in that namespace, so it
// outlives the agent. The leader checks the repositories, three at a time.
//
// Package source/git fetches files, and package render turns them into manifests, in a process of
// its own. Others apply the result, in the name of the Runner that put the source, and within what
// the cluster owner's policy allows that Runner at that moment.
package source

import (
	"context"
	"io"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// workers is how many sources are handled at once, as far as there is memory for them
// (internal/memory). workersOfNamespace is how many of one namespace, and workersOfRunner how many
// that one Runner has put: their Git servers may be slow.
const workers, workersOfNamespace, workersOfRunner = 3, 1, 2

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

// PreviewNamespaces are where previews of pull requests are.
type PreviewNamespaces interface {
	// SetPreview creates the namespace of a preview of a source, or updates its bounds.
	SetPreview(ctx context.Context, name string, source runnerapi.Key, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) error
	// Previews returns all namespaces of previews, with the source of each.
	Previews(ctx context.Context) (map[string]runnerapi.Key, error)
	Delete(ctx context.Context, name string, opts runnerapi.WriteOptions) error
}

// Config configures a Keeper.
type Config struct {
	REST       *rest.Config
	Agent      string   // its name, in what it reports to forges
	Namespace  string   // the agent's own
	Namespaces []string // the only ones that it may manage; empty for all
	Apps       Apps
	Manifests  Manifests // nil if this agent applies none
	Builds     Builds    // nil if it builds nothing
	Previews   PreviewNamespaces
	// SignIn reports whether the control plane has an identity provider for visitors, once that is
	// known. It may be nil.
	SignIn func() (has, known bool)
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
	Proxy proxy.Func
	// Guard decides to which hosts and addresses the agent connects for repositories.
	Guard  egress.Guard
	Limits git.Limits // git.DefaultLimits when zero
	Log    zerolog.Logger
}

// Keeper schedules looks at sources, and handles the calls about them.
type Keeper struct {
	config Config
	now    func() time.Time
	wake   wake.Signal
	work   workqueue.TypedDelayingInterface[runnerapi.Key]
	lanes  *limit.Lanes[runnerapi.Key]

	cluster    *cluster
	builder    *builder
	cleanup    *buildCleanup
	reconciler *reconciler
	revoked    *revokedRunners
	looks      looks
	reporter   *reporter
	previews   *previews
	races      kubeproblem.Races
	watched    watched
}

var _ backend.Sources = (*Keeper)(nil)

// Policy is the cluster owner's policy.
type Policy interface {
	Decide(i runnerapi.Intent) error
	// Signers returns by whose keys commits must be signed; nil if they need not be.
	Signers(i runnerapi.Intent) (*signature.Signers, error)
}

// New returns a Keeper. It makes no requests before Run or a call. Without a policy, the Keeper
// brings nothing.
func New(policy Policy, c Config) *Keeper {
	if c.Limits == (git.Limits{}) {
		c.Limits = git.DefaultLimits
	}
	cluster := &cluster{rest: c.REST, namespace: c.Namespace, namespaces: c.Namespaces, log: c.Log}
	journal := &journal{audit: c.Audit, begin: c.Before, now: time.Now}
	applier := &applier{Config: c, policy: policy, cluster: cluster, journal: journal}
	builder := &builder{builds: c.Builds, applier: applier, journal: journal}
	cleanup := &buildCleanup{builds: c.Builds, cluster: cluster, log: c.Log}
	revoked := &revokedRunners{}
	reporter := newReporter(c, applier, cluster, revoked)
	return &Keeper{
		config: c, now: time.Now, wake: wake.New(), work: workqueue.NewTypedDelayingQueue[runnerapi.Key](),
		lanes:   limit.NewLanes[runnerapi.Key](limit.PerOwner{Namespace: workersOfNamespace, Runner: workersOfRunner}),
		cluster: cluster, builder: builder, cleanup: cleanup, revoked: revoked, looks: looks{wake: wake.New()},
		reporter: reporter,
		previews: &previews{namespaces: c.Previews, applier: applier, cluster: cluster, reporter: reporter, journal: journal, provider: c.SignIn, now: time.Now, log: c.Log},
		reconciler: &reconciler{
			apps: c.Apps, manifests: c.Manifests, applier: applier, builder: builder, cleanup: cleanup,
			journal: journal, revoked: revoked, now: time.Now, log: c.Log,
		},
	}
}

// Wake makes a replica that has just become the leader check whether there is anything to follow.
// It does not block.
func (k *Keeper) Wake() {
	k.wake.Raise()
}
