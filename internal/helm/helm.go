package helm

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// maxAtWork bounds the commands that run at a time: each keeps a chart in memory while it waits
	// for pods. maxOfOwner bounds those of one namespace, and of one Runner: their pods may never
	// get ready.
	maxAtWork, maxOfOwner = 4, 3
	// maxHistory is how many revisions of a release are kept.
	maxHistory = 5
	// requestTimeout bounds each request to the Kubernetes API.
	requestTimeout = 30 * time.Second
	// renderTimeout bounds the rendering of a chart, which happens before a command is answered.
	renderTimeout = 20 * time.Second
	// patience is for parts of a chart that start side by side and crash until the others are
	// there.
	patience = 30 * time.Second
)

// Options describe where the agent runs and what it may fetch.
type Options struct {
	Namespace string // the agent's own
	// ServiceAccount is the agent's own; pipeops-agent when empty.
	ServiceAccount string
	Namespaces     []string // the only ones that it may manage; empty for all
	// Replica is the name of this replica among the agent's.
	Replica string
	// Charts says from where charts may come.
	Charts repository.Options
	// Render renders charts; the zero value runs this program, which calls render.Child.
	Render render.Process
	// Workloads reports the state of pods' controllers; if it is nil, Helm's own checks have to do.
	Workloads Workloads
	// Patience is how long a failure that may recover, such as a crash while another part of the
	// chart starts, may last before a command fails; 30 s when zero.
	Patience time.Duration
	// GoneWait is how long an uninstall waits for the release's objects and their pods to be gone;
	// 5 minutes when zero.
	GoneWait time.Duration
	Log      zerolog.Logger
}

// Workloads returns the state of an object that was just read; false for one that runs no pods.
type Workloads interface {
	Check(ctx context.Context, u *unstructured.Unstructured) (workloadhealth.Report, bool, error)
}

// Releases implements backend.Releases. Its commands go on after they were answered, until Run
// ends.
type Releases struct {
	opts   Options
	config *rest.Config
	fetch  *repository.Fetcher
	holder string // this process
	slots  *limit.OwnerShares

	mu      sync.Mutex
	life    context.Context // of commands; ends with Run
	stop    context.CancelFunc
	working sync.WaitGroup
	lives   *clients
	objects dynamic.Interface // made when it is used first
}

var _ backend.Releases = (*Releases)(nil)

// clients are created by the first call.
type clients struct {
	core     corev1client.CoreV1Interface
	metadata metadata.Interface
}

// New returns Releases. It makes no requests.
func New(config *rest.Config, opts Options) *Releases {
	opts.Patience = cmp.Or(opts.Patience, patience)
	if opts.GoneWait == 0 {
		opts.GoneWait = runnerapi.DefaultReleaseTimeout
	}
	opts.Render.Patience = cmp.Or(opts.Render.Patience, renderTimeout)
	r := &Releases{opts: opts, config: kubeclient.Config(config), fetch: repository.New(opts.Charts), holder: rand.Text(), slots: limit.NewOwnerShares(maxAtWork, limit.PerOwner{Namespace: maxOfOwner, Runner: maxOfOwner})}
	r.life, r.stop = context.WithCancel(context.Background())
	return r
}

// Run waits for ctx to end. It then makes running commands fail, which is recorded in their
// revisions, and waits for them.
func (r *Releases) Run(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.working.Wait()
	return nil
}

// begin registers a command's goroutine; it returns false if Run has ended.
func (r *Releases) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		return false
	}
	r.working.Add(1)
	return true
}

// helmManager is the field manager of the helm program itself: a release can pass from one to the
// other without conflicts.
const helmManager = "helm"

// helmGlobals sets Helm's process-wide settings.
var helmGlobals = sync.OnceFunc(func() {
	kube.ManagedFieldsManager = helmManager
})

func (r *Releases) clients() (*clients, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lives != nil {
		return r.lives, nil
	}
	timed := rest.CopyConfig(r.config)
	timed.Timeout = requestTimeout
	c, err := clientsFor(timed)
	if err == nil {
		r.lives = c
	}
	return c, err
}

func clientsFor(config *rest.Config) (*clients, error) {
	rc, hc, err := kubeclient.New(config)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return &clients{core, meta}, nil
}

// admit refuses a namespace that is not managed.
func (r *Releases) admit(ctx context.Context, c *clients, namespace string) error {
	scope := objectmeta.Scope{Agent: r.opts.Namespace, Only: r.opts.Namespaces}
	_, err := admission.Namespace(ctx, scope, namespace, func(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
		return c.metadata.Resource(admission.Resource).Get(ctx, name, metav1.GetOptions{})
	})
	return err
}

// enter is like admit and returns the clients.
func (r *Releases) enter(ctx context.Context, namespace string) (*clients, error) {
	c, err := r.clients()
	if err != nil {
		return nil, err
	}
	return c, r.admit(ctx, c, namespace)
}

func unknown(key runnerapi.Key) error {
	return problem.Errorf(problem.NotFound, "see which there are: pipeops-runner helm list AGENT -n "+key.Namespace,
		"there is no release %s in namespace %s", key.Name, key.Namespace)
}
