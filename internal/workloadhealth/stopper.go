package workloadhealth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const (
	// manyEnded pods within endedIn cause a check of their workload.
	manyEnded = 5
	endedIn   = time.Minute
	// maxMakers bounds of how many workloads the ends of pods are counted.
	maxMakers = 1000
	// stopAgain is when a stop is tried again that failed.
	stopAgain = 2 * time.Second
)

// Stopper stops workloads of sets and releases whose pods come to nothing at once, again
// and again: their controllers have no back-off for that. It watches failed pods alone.
// Apps are stopped by their engine.
type Stopper struct {
	Checker    *Checker
	Namespaces []string // the only ones that the agent may manage; empty for all
	// Leads reports whether this replica stops anything.
	Leads func() bool
	Log   zerolog.Logger

	work workqueue.TypedDelayingInterface[maker]
	ends map[types.UID][]time.Time // of a maker's pods; the informer's own
}

// maker is what makes pods.
type maker struct{ namespace, kind, name string }

// Run watches until ctx ends.
func (s *Stopper) Run(ctx context.Context) error {
	core, err := corev1client.NewForConfig(kubeclient.Config(s.Checker.config))
	if err != nil {
		return fmt.Errorf("prepare the client that watches failed pods: %w", err)
	}
	s.work, s.ends = workqueue.NewTypedDelayingQueue[maker](), map[types.UID][]time.Time{}
	all, ctx := errgroup.WithContext(ctx)
	in := s.Namespaces
	if len(in) == 0 {
		in = []string{metav1.NamespaceAll}
	}
	noted := make(chan *corev1.Pod)
	for _, namespace := range in {
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: failedPods(core.Pods(namespace)), ObjectType: &corev1.Pod{}, Transform: bare,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(in any) {
				if pod, ok := in.(*corev1.Pod); ok {
					select {
					case noted <- pod:
					case <-ctx.Done():
					}
				}
			}},
		})
		all.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	all.Go(func() error {
		defer s.work.ShutDown()
		for {
			select {
			case pod := <-noted:
				s.count(pod)
			case <-ctx.Done():
				return nil
			}
		}
	})
	all.Go(func() error {
		s.drain(ctx)
		return nil
	})
	return all.Wait()
}

func failedPods(pods corev1client.PodInterface) cache.ListerWatcher {
	const failed = "status.phase=Failed"
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = failed
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = failed
			return pods.Watch(ctx, o)
		},
	}
}

// bare returns a pod of which only that is kept which is counted.
func bare(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, OwnerReferences: pod.OwnerReferences,
	}}, nil
}

// count schedules a check of a pod's owner if the pod is one of many that failed.
func (s *Stopper) count(pod *corev1.Pod) {
	by := metav1.GetControllerOfNoCopy(pod)
	if by == nil || by.Kind != "ReplicaSet" && by.Kind != "StatefulSet" {
		return
	}
	now := s.Checker.now()
	if now.Sub(pod.CreationTimestamp.Time) > endedIn {
		return
	}
	old := func(at time.Time) bool { return now.Sub(at) > endedIn }
	if len(s.ends) >= maxMakers {
		for uid, at := range s.ends {
			if old(at[len(at)-1]) {
				delete(s.ends, uid)
			}
		}
	}
	if s.ends[by.UID] == nil && len(s.ends) >= maxMakers {
		return
	}
	at := append(slices.DeleteFunc(s.ends[by.UID], old), pod.CreationTimestamp.Time)
	s.ends[by.UID] = at[max(len(at)-manyEnded, 0):]
	if len(at) >= manyEnded {
		s.work.Add(maker{pod.Namespace, by.Kind, by.Name})
	}
}

func (s *Stopper) drain(ctx context.Context) {
	for {
		m, stopped := s.work.Get()
		if stopped {
			return
		}
		if s.Leads() {
			if err := s.stop(ctx, m); err != nil && ctx.Err() == nil {
				s.Log.Warn().Err(err).Str("namespace", m.namespace).Str("kind", m.kind).Str("name", m.name).
					Msg("failed to stop a workload whose pods all fail")
				if !apierrors.IsForbidden(err) { // a right that is missing does not come by waiting
					s.work.AddAfter(m, stopAgain)
				}
			}
		}
		s.work.Done(m)
	}
}

// stop stops the workload that makes the pods, when it is the agent's and no pod lives.
func (s *Stopper) stop(ctx context.Context, m maker) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	api, err := s.Checker.client()
	if err != nil {
		return err
	}
	live, err := workloadOf(ctx, api, m)
	if err != nil || live == nil {
		return client.IgnoreNotFound(err)
	}
	w, err := typed(live)
	if err != nil || standing(w) != nil {
		return err
	}
	manager, err := managerOf(ctx, api, w)
	if err != nil || manager == "" {
		return err
	}
	f, _, err := s.Checker.find(ctx, api, w)
	if err != nil || !f.Stop {
		return err
	}
	d := reworded(f.Halted(), w)
	if err := hold(ctx, api, live, w, manager, d); err != nil {
		return fmt.Errorf("stop the rollout of %s: %w", pathOf(w), err)
	}
	s.Log.Warn().Str("namespace", m.namespace).Str("workload", pathOf(w)).Str("cause", string(d.Cause)).
		Msg("stopping a rollout: all its pods fail at once")
	return nil
}

// workloadOf reads what an apply or a chart brought that makes the pods: a Deployment, of
// one of whose ReplicaSets they are, or their maker itself.
func workloadOf(ctx context.Context, api client.Client, m maker) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(m.kind))
	name := m.name
	if m.kind == "ReplicaSet" { // which the agent may list, and in general not get
		var list appsv1.ReplicaSetList
		if err := api.List(ctx, &list, client.InNamespace(m.namespace), client.MatchingFields{"metadata.name": name}); err != nil || len(list.Items) == 0 {
			return nil, err
		}
		if by := metav1.GetControllerOf(&list.Items[0]); by != nil {
			if by.Kind != "Deployment" {
				return nil, nil
			}
			live.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(by.Kind))
			name = by.Name
		} else if list.Items[0].Annotations[objectmeta.SetOf] == "" && list.Items[0].Annotations[helmRelease] == "" {
			return nil, nil
		}
	}
	return live, api.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: name}, live)
}
