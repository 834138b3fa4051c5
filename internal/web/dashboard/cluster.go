package dashboard

import (
	"context"
	"fmt"

	"github.com/go-logr/zerologr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/logs"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/rollout"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// facts are what the pages read of the cluster beside Apps and their pods. Tests have others.
type facts interface {
	Facts(ctx context.Context) (kube.Facts, error)
	ListNodes(ctx context.Context) ([]runnerapi.Node, error)
	ReadPolicy(ctx context.Context) (map[string]string, error)
	PolicySource() string
	Own(ctx context.Context) (kube.Own, error)
	// PodWarnings returns the warning events about the pods of a namespace, the newest first.
	PodWarnings(ctx context.Context, namespace string) ([]runnerapi.ClusterEvent, error)
}

// clusterFacts reads them from a cluster.
type clusterFacts struct {
	kube.Cluster
	nodes  kube.Nodes
	events kube.Events
}

func (f clusterFacts) ListNodes(ctx context.Context) ([]runnerapi.Node, error) {
	return f.nodes.List(ctx)
}

func (f clusterFacts) PodWarnings(ctx context.Context, namespace string) ([]runnerapi.ClusterEvent, error) {
	return f.events.List(ctx, namespace, runnerapi.EventFilter{Kind: "Pod", Type: corev1.EventTypeWarning})
}

// approvals are the commands that wait for the owner.
type approvals interface {
	List(ctx context.Context) ([]runnerapi.Approval, error)
	Approve(ctx context.Context, id string) (runnerapi.Approval, error)
}

// cluster reads and changes the cluster with its caller's rights, and keeps nothing of it.
type cluster struct {
	client    client.WithWatch
	facts     facts
	approvals approvals
	store     *appcache.Store
	history   *revision.History
	writer    *rollout.Writer
	logs      *logs.Reader
	readiness func(ctx context.Context, pod *corev1.Pod) (Readiness, error)
	// metrics returns an App's metrics over time, from the cluster's Prometheus.
	metrics func(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error)
	// shares returns what the agent has counted of public requests; nil if nothing reads it.
	shares func(ctx context.Context) ([]traffic.Share, error)
	// usage returns what Apps use now, from metrics-server.
	usage func(ctx context.Context) (map[runnerapi.Key]sizing.AppUse, error)
}

func newCluster(opts Options) (*cluster, error) {
	rc, hc, err := kubeclient.New(opts.Kubernetes)
	if err != nil {
		return nil, err
	}
	scheme, err := appcache.NewScheme()
	if err != nil {
		return nil, err
	}
	crlog.SetLogger(zerologr.New(new(opts.Log))) // it complains on its own otherwise
	c, err := client.NewWithWatch(rc, client.Options{Scheme: scheme, Mapper: appcache.NewMapper(), HTTPClient: hc})
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	k, err := kube.New(opts.Kubernetes, kube.Options{Namespace: opts.Namespace, Log: opts.Log})
	if err != nil {
		return nil, err
	}
	made := makeCluster(opts, c, core, clusterFacts{k.Cluster(), k.Nodes(), k.Events()}, k.Approvals())
	made.readiness = podReadiness(core.RESTClient())
	api, err := kubernetes.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	made.metrics = metricsThrough(hc, api, made.store)
	made.shares = k.TrafficStore().List
	return made, nil
}

func makeCluster(opts Options, c client.WithWatch, pods corev1client.PodsGetter, f facts, a approvals) *cluster {
	kept := appcache.New(c, c, objectmeta.Scope{Agent: opts.Namespace}, opts.Log, opts.Now)
	kept.SetReady(true) // there is no cache to fill
	history := revision.New(kept)
	return &cluster{
		client: c, facts: f, approvals: a, store: kept, history: history,
		writer: rollout.New(kept, nil, history, opts.Log, opts.Now), // nil: it deploys nothing
		logs:   logs.New(kept, pods, opts.Log, opts.Now),
		usage:  func(ctx context.Context) (map[runnerapi.Key]sizing.AppUse, error) { return sizing.UseOfApps(ctx, c) },
	}
}

// watched is what a page's stream is woken by.
type watched struct {
	list client.ObjectList
	opts []client.ListOption
	seen func(watch.Event) // may be nil
}

// changes returns a channel that signals that something of it may have changed, until ctx ends. It
// also does so at intervals, for what cannot be watched.
func (c *cluster) changes(ctx context.Context, all ...watched) <-chan struct{} {
	out := wake.New()
	for _, w := range all {
		go func() {
			for {
				c.watch(ctx, w, out)
				if !retry.Wait(ctx, retry.Jitter(watchPause)) {
					return
				}
			}
		}()
	}
	go func() {
		for retry.Wait(ctx, lookAgain) {
			out.Raise()
		}
	}()
	return out
}

// watch passes on changes until the watch ends, or cannot begin: the caller may lack the right.
func (c *cluster) watch(ctx context.Context, what watched, changed wake.Signal) {
	w, err := c.client.Watch(ctx, what.list.DeepCopyObject().(client.ObjectList), what.opts...)
	if err != nil {
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, more := <-w.ResultChan():
			if !more {
				changed.Raise() // the cluster may be away
				return
			}
			if what.seen != nil {
				what.seen(event)
			}
			changed.Raise()
		}
	}
}

func allApps() watched { return watched{list: &v1alpha1.List{}} }

func ofApp(key runnerapi.Key) []watched {
	return []watched{
		{list: &v1alpha1.List{}, opts: []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}}},
		{list: &corev1.PodList{}, opts: []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels(objectmeta.AppLabels(key.Name))}},
	}
}

func inNamespace(list client.ObjectList, namespace string) watched {
	return watched{list: list, opts: []client.ListOption{client.InNamespace(namespace)}}
}
