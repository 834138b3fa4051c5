package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

const (
	unmanagedNamespaces = 10
	// fillTimeout is the time for simulated pods to report that they run.
	fillTimeout     = 20 * time.Minute
	healthyInterval = 5 * time.Second
)

// fillApps deploys the Apps into namespaces whose pods go to simulated nodes. It waits until all are
// healthy and the agent has reported that to the control plane, which is its last step of a rollout.
// The next measurement is of an agent beside these Apps, and not of one that is still creating them.
func (b *apps) fillApps(ctx context.Context) {
	patch := run.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": cluster.Simulate()}}))
	for i := range b.Namespaces {
		name := b.app(i).Namespace
		b.namespace(ctx, name)
		run.Must(b.kube.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}))
	}
	b.Each(ctx, b.Apps, "deployed", func(ctx context.Context, i int) {
		run.Must(b.client.Apps().Deploy(ctx, b.app(i), b.spec(0), write))
	})
	b.Await(ctx, fillTimeout, healthyInterval, func() {
		if n := b.announced(ctx); n < b.Apps {
			run.Failf("%d of %d Apps are healthy, and announced as such", n, b.Apps)
		}
	})
}

// announced counts the Apps that are healthy, and of which the control plane has received that.
func (b *apps) announced(ctx context.Context) (n int) {
	raw := run.Must(b.kube.CoreV1().RESTClient().Get().AbsPath("/apis/pipeops.io/v1alpha1/apps").DoRaw(ctx))
	type state struct {
		Phase runnerapi.Phase `json:"phase"`
	}
	var list struct {
		Items []struct {
			Status struct {
				state
				Announced state `json:"announced"`
			} `json:"status"`
		} `json:"items"`
	}
	run.Check(json.Unmarshal(raw, &list))
	for _, a := range list.Items {
		if a.Status.Phase == runnerapi.PhaseHealthy && a.Status.Announced.Phase == runnerapi.PhaseHealthy {
			n++
		}
	}
	return n
}

// fillUnmanaged creates pods of others. They name their node themselves: the agent does not care,
// and the scheduler would take minutes.
func (b *apps) fillUnmanaged(ctx context.Context) {
	for i := range unmanagedNamespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: othersName(i), Annotations: cluster.Simulate()}}
		run.Must(b.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}))
		b.Await(ctx, time.Minute, tick, func() { // pods are refused without it
			run.Must(b.kube.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{}))
		})
	}
	b.Each(ctx, b.Unmanaged, "made", func(ctx context.Context, i int) {
		pod := othersPod(i, cluster.SimulatedNode(i%b.nodes()))
		run.Must(b.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
	})
	for i := range unmanagedNamespaces {
		b.Await(ctx, fillTimeout, tick, func() {
			left := run.Must(b.kube.CoreV1().Pods(othersName(i)).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running", Limit: 1}))
			if len(left.Items) > 0 {
				run.Failf("pod %s is %s", left.Items[0].Name, left.Items[0].Status.Phase)
			}
		})
	}
}

func othersName(i int) string { return fmt.Sprintf("others-%d", i%unmanagedNamespaces) }

func othersPod(i int, node string) *corev1.Pod {
	name := fmt.Sprintf("pod-%d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: othersName(i), Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "somebody-else"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "main", Image: "apps.test/others:1",
				Env: []corev1.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "MODE", Value: "production"}},
			}},
		},
	}
}
