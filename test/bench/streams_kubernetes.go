package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// agentNamespace is where the agent and its policy are.
const agentNamespace = "pipeops"

// kubernetesPolicy allows the Kubernetes API beside what the default policy allows.
const kubernetesPolicy = `rules:
- name: kubernetes
  commands: [kubernetes-api]
  kubernetes: {user: pipeops-runner, groups: [pipeops-runners]}
- name: all
`

// measureWrites creates and patches objects by the Kubernetes API, directly and through the tunnel,
// one after the other. The two take turns.
func (b *streams) measureWrites(ctx context.Context) {
	tunnel := b.throughTunnel(ctx)
	doors, ratios := []kubernetes.Interface{b.kube, tunnel}, map[string][]float64{}
	b.InRounds(1+b.Rounds, func(round int) { // the first warms connections up and does not count
		took := [2]map[string]time.Duration{}
		for _, door := range run.Turns([]int{0, 1}, round) {
			took[door] = b.writes(ctx, doors[door], fmt.Sprintf("writes-%d-%d", round, door))
		}
		for id := range took[0] {
			if round > 0 {
				ratios[id] = append(ratios[id], took[1][id].Seconds()/took[0][id].Seconds())
			}
		}
	})
	for id, all := range ratios {
		b.Add(id, run.Median(all))
	}
}

// writes returns how long the creates and the patches took.
func (b *streams) writes(ctx context.Context, client kubernetes.Interface, prefix string) map[string]time.Duration {
	maps, name := client.CoreV1().ConfigMaps(streamsNamespace), func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	start := time.Now()
	for i := range b.Creates {
		run.Must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}, metav1.CreateOptions{}))
	}
	created := time.Now()
	for i := range b.Patches {
		patch := fmt.Appendf(nil, `{"data":{"a":"%d"}}`, i)
		run.Must(maps.Patch(ctx, name(i%b.Creates), types.MergePatchType, patch, metav1.PatchOptions{}))
	}
	patched := time.Now()
	for i := range b.Creates {
		run.Check(maps.Delete(ctx, name(i), metav1.DeleteOptions{}))
	}
	return map[string]time.Duration{"kubernetes_creates": created.Sub(start), "kubernetes_patches": patched.Sub(created)}
}

// throughTunnel lets the Runner use the Kubernetes API, and returns a client that does.
func (b *streams) throughTunnel(ctx context.Context) kubernetes.Interface {
	policies := b.kube.CoreV1().ConfigMaps(agentNamespace)
	policy := run.Must(policies.Get(ctx, "pipeops-policy", metav1.GetOptions{}))
	policy.Data = map[string]string{"policy.yaml": kubernetesPolicy}
	run.Must(policies.Update(ctx, policy, metav1.UpdateOptions{}))
	run.Must(b.sys.Cluster.Kubectl(ctx, "apply", "-f", filepath.Join(harness.Root(), "deployments", "kubernetes-api-rights.yaml")))
	run.Must(b.sys.Cluster.Kubectl(ctx, "-n", streamsNamespace, "create", "rolebinding", "pipeops-runners", "--clusterrole=edit", "--group=pipeops-runners"))
	file := filepath.Join(b.sys.Dir, "kubeconfig")
	run.Must(b.sys.Runner(ctx, name, "kubeconfig", name, "--kubeconfig", file))
	config := run.Must(clientcmd.BuildConfigFromFlags("", file))
	config.QPS, config.Burst = -1, 0
	client := run.Must(kubernetes.NewForConfig(config))
	run.Check(harness.Eventually(ctx, "the policy allows the Kubernetes API", func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(streamsNamespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}))
	return client
}
