package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	readyNamespace = "ready"
	// goneTimeout is how long a pod may take to stop.
	goneTimeout = time.Minute
)

// way is one way to run a pod.
type way struct {
	id            string
	start, remove func()
}

// measureReady runs one new pod after another on the real node. The ways take turns. The time
// counts from the call, or the start of the command, until the API server reports a ready pod.
func (b *apps) measureReady(ctx context.Context) {
	b.namespace(ctx, readyNamespace)
	ways, took := b.ways(ctx), map[string][]float64{}
	b.InRounds(1+b.Rounds, func(round int) { // the first warms caches up and does not count
		for _, w := range run.Turns(ways, round) {
			ms := b.once(ctx, w)
			if round > 0 {
				took[w.id] = append(took[w.id], ms)
			}
		}
	})
	for id, ms := range took {
		b.Add("ready_"+id, run.Median(ms))
	}
	b.Add("ready_ratio_client", run.Median(took["client"])/run.Median(took["kubectl"]))
	b.Add("ready_ratio_command", run.Median(took["command"])/run.Median(took["kubectl"]))
}

// once runs a pod in one way, and removes it.
func (b *apps) once(ctx context.Context, w way) float64 {
	ready := b.watchReady(ctx)
	start := time.Now()
	w.start()
	took := ready(ctx).Sub(start)
	w.remove()
	b.awaitEmpty(ctx)
	return run.Milliseconds(took)
}

// watchReady watches for a ready pod in the namespace, which has no pods yet.
func (b *apps) watchReady(ctx context.Context) seen {
	pods := run.Must(b.kube.CoreV1().Pods(readyNamespace).List(ctx, metav1.ListOptions{}))
	if len(pods.Items) > 0 {
		run.Failf("namespace %s is not empty", readyNamespace)
	}
	w := run.Must(b.kube.CoreV1().Pods(readyNamespace).Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion}))
	return await(w, func(o runtime.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// ways returns deploys by the Go client and by the command line, and the very objects that the
// agent makes of such an App, by kubectl.
func (b *apps) ways(ctx context.Context) []way {
	spec := b.spec(0)
	spec.Replicas, spec.GraceSeconds = new(int32(1)), new(int64(1))
	spec.Probes = runnerapi.Probes{} // the kubelet's first look may come a period late, independently of the deployer
	objects := b.export(ctx, spec)
	exported := b.file("exported.json", &unstructured.UnstructuredList{
		Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: objects,
	})
	byClient := runnerapi.Key{Namespace: readyNamespace, Name: "by-client"}
	byCommand := runnerapi.Key{Namespace: readyNamespace, Name: "by-command"}
	manifest := b.file("app.json", map[string]any{
		"apiVersion": "pipeops.io/v1alpha1", "kind": "App",
		"metadata": map[string]any{"namespace": byCommand.Namespace, "name": byCommand.Name}, "spec": spec,
	})
	removeApp := func(key runnerapi.Key) func() {
		return func() { run.Check(b.client.Apps().Delete(ctx, key, write)) }
	}
	removeObjects := func() {
		for i := range objects {
			err := b.sys.Kube.Delete(ctx, objects[i].DeepCopy(), client.PropagationPolicy("Background"))
			run.Check(client.IgnoreNotFound(err))
		}
	}
	return []way{
		{"client", func() { run.Must(b.client.Apps().Deploy(ctx, byClient, spec, write)) }, removeApp(byClient)},
		{"command", func() { run.Must(b.sys.Runner(ctx, name, "deploy", name, "-f", manifest, "--no-wait")) }, removeApp(byCommand)},
		{"kubectl", func() { run.Must(b.sys.Cluster.Kubectl(ctx, "apply", "-f", exported)) }, removeObjects},
	}
}

// file writes what kubectl or pipeops-runner is to read.
func (b *apps) file(name string, what any) string {
	file := filepath.Join(b.sys.Dir, name)
	run.Check(os.WriteFile(file, run.Must(json.Marshal(what)), 0o600))
	return file
}

// export deploys an App and returns the objects that the agent made of it, in the form that a user
// would write for kubectl: without what the cluster added.
func (b *apps) export(ctx context.Context, spec runnerapi.AppSpec) (objects []unstructured.Unstructured) {
	key := runnerapi.Key{Namespace: readyNamespace, Name: "exported"}
	ready := b.watchReady(ctx)
	run.Must(b.client.Apps().Deploy(ctx, key, spec, write))
	ready(ctx)
	for _, of := range []map[string]any{{"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "v1", "kind": "Service"}} {
		obj := unstructured.Unstructured{Object: of}
		run.Check(b.sys.Kube.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &obj))
		for _, field := range [][]string{
			{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"},
			{"metadata", "managedFields"}, {"metadata", "ownerReferences"}, {"metadata", "annotations", "deployment.kubernetes.io/revision"},
			{"status"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"},
		} {
			unstructured.RemoveNestedField(obj.Object, field...)
		}
		objects = append(objects, obj)
	}
	run.Check(b.client.Apps().Delete(ctx, key, write))
	b.awaitEmpty(ctx)
	return objects
}

// awaitEmpty waits until nothing is left of what was deployed last.
func (b *apps) awaitEmpty(ctx context.Context) {
	b.Await(ctx, goneTimeout, tick, func() {
		pods := run.Must(b.kube.CoreV1().Pods(readyNamespace).List(ctx, metav1.ListOptions{}))
		workloads := run.Must(b.kube.AppsV1().Deployments(readyNamespace).List(ctx, metav1.ListOptions{}))
		apps := run.Must(b.client.Apps().List(ctx, readyNamespace))
		if left := len(pods.Items) + len(workloads.Items) + len(apps); left > 0 {
			run.Failf("there are %d objects left", left)
		}
	})
}
