package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	readyNamespace = "ready"
	// goneTimeout is how long a pod may take to stop.
	goneTimeout = time.Minute
)

// way is one way to run a pod.
type way struct {
	id, title string
	start     func(context.Context) error
	remove    func(context.Context) error
	took      durations
}

// measureReady runs one new pod after another on the real node. The ways take turns, and each comes
// first equally often. The time counts from the call, or the start of the command, until the API
// server reports a ready pod.
func (b *bench) measureReady(ctx context.Context) error {
	if _, err := b.client.Namespaces().Set(ctx, readyNamespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{}); err != nil {
		return err
	}
	ways, err := b.ways(ctx)
	if err != nil {
		return err
	}
	for round := range 1 + b.Rounds { // the first warms caches up and does not count
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			took, err := b.once(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.title, err)
			}
			if round > 0 {
				w.took = append(w.took, took)
			}
		}
	}
	b.addReady(ways)
	return nil
}

func (b *bench) addReady(ways []*way) {
	median := map[string]float64{}
	for _, w := range ways {
		median[w.id] = milliseconds(w.took.median())
		b.set.Add("ready_"+w.id, median[w.id])
	}
	b.set.Add("ready_ratio_client", median["client"]/median["kubectl"])
	b.set.Add("ready_ratio_command", median["command"]/median["kubectl"])
}

// once runs a pod in one way, and removes it.
func (b *bench) once(ctx context.Context, w *way) (time.Duration, error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, err := b.watchReady(watching, readyNamespace)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := w.start(ctx); err != nil {
		return 0, err
	}
	at, err := ready(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.remove(ctx); err != nil {
		return 0, err
	}
	return at.Sub(start), b.awaitEmpty(ctx)
}

// ways returns deploys by the Go client and by the command line, and the very objects that the
// agent makes of such an App: by kubectl, and by their bare requests, which is the least that it
// can take.
func (b *bench) ways(ctx context.Context) ([]*way, error) {
	spec := b.spec(0)
	spec.Replicas, spec.GraceSeconds = new(int32(1)), new(int64(1))
	spec.Probes = runnerapi.Probes{} // the kubelet's first look may come a period late, independently of the deployer
	objects, err := b.export(ctx, spec)
	if err != nil {
		return nil, err
	}
	exported, err := b.write("exported.json", &unstructured.UnstructuredList{
		Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: objects,
	})
	if err != nil {
		return nil, err
	}
	key := runnerapi.Key{Namespace: readyNamespace, Name: "by-command"}
	manifest, err := b.write("app.json", map[string]any{
		"apiVersion": "pipeops.io/v1alpha1", "kind": "App",
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name}, "spec": spec,
	})
	if err != nil {
		return nil, err
	}
	removeObjects := func(ctx context.Context) error { return b.removeObjects(ctx, objects) }
	byClient := runnerapi.Key{Namespace: readyNamespace, Name: "by-client"}
	return []*way{
		{id: "client", title: "a deploy by the Go client", remove: b.removeApp(byClient), start: func(ctx context.Context) error {
			_, err := b.client.Apps().Deploy(ctx, byClient, spec, runnerapi.WriteOptions{})
			return err
		}},
		{id: "command", title: "pipeops-runner deploy", remove: b.removeApp(key), start: func(ctx context.Context) error {
			_, err := b.sys.Runner(ctx, name, "deploy", name, "-f", manifest, "--no-wait")
			return err
		}},
		{id: "kubectl", title: "kubectl apply", remove: removeObjects, start: func(ctx context.Context) error {
			_, err := b.sys.Cluster.Kubectl(ctx, "apply", "-f", exported)
			return err
		}},
		{id: "requests", title: "the bare requests", remove: removeObjects, start: func(ctx context.Context) error {
			for i := range objects {
				if err := b.sys.Kube.Apply(ctx, &objects[i]); err != nil {
					return err
				}
			}
			return nil
		}},
	}, nil
}

// write puts what kubectl or pipeops-runner is to read into a file.
func (b *bench) write(name string, what any) (string, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.sys.Dir, name)
	return file, os.WriteFile(file, text, 0o600)
}

func (b *bench) removeApp(key runnerapi.Key) func(context.Context) error {
	return func(ctx context.Context) error { return b.client.Apps().Delete(ctx, key, runnerapi.WriteOptions{}) }
}

// awaitEmpty waits until nothing is left of what was deployed last.
func (b *bench) awaitEmpty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	return harness.Eventually(ctx, "namespace "+readyNamespace+" is empty", func(ctx context.Context) error {
		pods, err := b.kube.CoreV1().Pods(readyNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		workloads, err := b.kube.AppsV1().Deployments(readyNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		apps, err := b.client.Apps().List(ctx, readyNamespace)
		if left := len(pods.Items) + len(workloads.Items) + len(apps); err == nil && left > 0 {
			err = fmt.Errorf("there are %d objects left", left)
		}
		return err
	})
}
