package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	unmanagedNamespaces = 10
	// fillTimeout is the time for simulated pods to report that they run.
	fillTimeout = 20 * time.Minute
)

// fillUnmanaged creates pods of others. They name their node themselves: the agent does not care,
// and the scheduler would take minutes.
func (b *bench) fillUnmanaged(ctx context.Context) error {
	for i := range unmanagedNamespaces {
		if err := b.othersNamespace(ctx, othersName(i)); err != nil {
			return err
		}
	}
	err := b.each(ctx, b.Unmanaged, "made", func(ctx context.Context, i int) error {
		pod := othersPod(i, cluster.SimulatedNode(i%b.nodes()))
		_, err := b.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	for i := range unmanagedNamespaces {
		if err := b.awaitRunning(ctx, othersName(i)); err != nil {
			return err
		}
	}
	return nil
}

func othersName(i int) string { return fmt.Sprintf("others-%d", i%unmanagedNamespaces) }

// othersNamespace makes a namespace and waits for its service account, without
// which pods are refused.
func (b *bench) othersNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: cluster.Simulate()}}
	if _, err := b.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return harness.Eventually(ctx, "namespace "+name+" has a service account", func(ctx context.Context) error {
		_, err := b.kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

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

// awaitRunning waits until all pods of a namespace report that they run.
func (b *bench) awaitRunning(ctx context.Context, namespace string) error {
	return harness.Eventually(ctx, "all pods of "+namespace+" run", func(ctx context.Context) error {
		left, err := b.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running", Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("pod %s is %s", left.Items[0].Name, left.Items[0].Status.Phase)
		}
		return err
	})
}
