package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// apps measures the agent beside many Apps and pods.
type apps struct {
	Apps       int `flag:"apps" usual:"1000" short:"30" help:"Apps deployed through the Runner API"`
	Replicas   int `flag:"replicas" usual:"5" help:"pods of each App"`
	Namespaces int `flag:"namespaces" usual:"10" help:"namespaces that the Apps are in"`
	Unmanaged  int `flag:"unmanaged" usual:"20000" short:"500" help:"pods that are not the agent's"`
	Lists      int `flag:"lists" usual:"100" short:"20" help:"list calls"`
	Deploys    int `flag:"deploys" usual:"50" short:"10" help:"deploys of a changed spec"`
	Rounds     int `flag:"rounds" usual:"15" short:"3" help:"new Apps to wait for until they are ready, in each way"`

	rig
	image string
}

const (
	// podsPerNode is what a simulated node has room for.
	podsPerNode = 250
	// warmups are calls that are not measured.
	warmups = 3
	// versionVariable is the variable that distinguishes the versions of a spec.
	versionVariable = "VERSION"
)

func (b *apps) Measure(ctx context.Context, r *run.Run) {
	// metrics-server would ask nodes that are not there.
	b.begin(ctx, r, harness.Options{Kubernetes: cluster.Options{SimulatedNodes: b.nodes(), WithoutMetrics: true}})
	r.Step("the Apps' image", func() { b.image = run.Must(b.sys.LoadApp(ctx, "hello")) })
	r.Step(fmt.Sprintf("%d pods that are not the agent's", b.Unmanaged), func() { b.fillUnmanaged(ctx) })
	r.Step(fmt.Sprintf("%d Apps of %d pods, through the Runner API", b.Apps, b.Replicas), func() { b.fillApps(ctx) })
	r.Step(fmt.Sprintf("%d list calls", b.Lists), func() { b.measureLists(ctx) })
	r.Step(fmt.Sprintf("%d deploys of a changed spec", b.Deploys), func() { b.measureDeploys(ctx) })
	r.Step("from the deploy to the ready pod", func() { b.measureReady(ctx) })
	r.Step("the agent's memory, and again after a restart", func() { b.measureMemory(ctx) })
}

// nodes returns how many nodes have room for everything, and a tenth more for rollouts.
func (b *apps) nodes() int { return (b.Apps*b.Replicas+b.Unmanaged)*11/10/podsPerNode + 1 }

// app names the App of a number; beyond the last comes the first again.
func (b *apps) app(i int) runnerapi.Key {
	i %= b.Apps
	return named(fmt.Sprintf("apps-%d", i%b.Namespaces), "app", i)
}

// spec returns an ordinary App: a port and so a Service, a few variables, a probe, requests and
// limits. Each version of it is another spec.
func (b *apps) spec(version int) runnerapi.AppSpec {
	return runnerapi.AppSpec{
		Image: b.image, Replicas: new(int32(b.Replicas)),
		Ports: []runnerapi.Port{{Name: "http", Port: 8080}},
		Env: []runnerapi.EnvVar{
			{Name: versionVariable, Value: fmt.Sprint(version)}, {Name: "MODE", Value: "production"},
			{Name: "UPSTREAM", Value: "http://upstream.example.svc:8080/api"},
		},
		Resources: runnerapi.Resources{
			Requests: runnerapi.ResourceAmounts{CPU: "50m", Memory: "64Mi"}, Limits: runnerapi.ResourceAmounts{Memory: "128Mi"},
		},
		Probes: runnerapi.Probes{Readiness: &runnerapi.Probe{HTTP: &runnerapi.HTTPProbe{Path: "/healthz", Port: 8080}}},
	}
}

// measureLists asks for all Apps, one call after another: from the call to the last App decoded.
func (b *apps) measureLists(ctx context.Context) {
	var all []float64
	for range warmups + b.Lists {
		start := time.Now()
		if n := len(run.Must(b.client.Apps().List(ctx, ""))); n != b.Apps {
			run.Failf("the list has %d Apps of %d", n, b.Apps)
		}
		all = append(all, run.Milliseconds(time.Since(start)))
	}
	b.addTimes("list", all[warmups:])
}

func (b *apps) addTimes(id string, took []float64) {
	b.Add(id+"_p50", run.Percentile(took, 0.5))
	b.Add(id+"_p99", run.Percentile(took, 0.99))
}

// measureDeploys deploys changed specs, to one App after another, each when the rollout of the one
// before has ended. It measures from each call until the API server shows the Deployment with the
// new spec.
func (b *apps) measureDeploys(ctx context.Context) {
	var answered, applied []float64
	for i := range b.Deploys {
		key, version := b.app(i), 1+i/b.Apps
		changed := b.watchDeployment(ctx, key, fmt.Sprint(version))
		start := time.Now()
		app := run.Must(b.client.Apps().Deploy(ctx, key, b.spec(version), write))
		answered = append(answered, run.Milliseconds(time.Since(start)))
		applied = append(applied, run.Milliseconds(changed(ctx).Sub(start)))
		b.awaitRollout(ctx, key, app.Generation)
	}
	b.Add("deploy_answer_p50", run.Percentile(answered, 0.5))
	b.addTimes("deploy_applied", applied)
}

// watchDeployment watches for an App's Deployment with a version of the spec.
func (b *apps) watchDeployment(ctx context.Context, key runnerapi.Key, version string) seen {
	w := run.Must(b.kube.AppsV1().Deployments(key.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name}))
	return await(w, func(o runtime.Object) bool {
		d, ok := o.(*appsv1.Deployment)
		return ok && slices.Contains(d.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: versionVariable, Value: version})
	})
}

// measureMemory reads what the agent's process has and has had resident, then ends it as a crash
// would, and looks how it comes back to a full cluster.
func (b *apps) measureMemory(ctx context.Context) {
	add := func(prefix string) {
		b.Add(prefix+"memory_now", run.Mebibytes(run.Must(b.sys.AgentMemory(ctx))))
		b.Add(prefix+"memory_peak", run.Mebibytes(run.Must(b.sys.AgentPeakMemory(ctx))))
	}
	b.neverRestarted(ctx)
	add("")
	run.Check(b.sys.KillAgent(ctx))
	start := time.Now()
	run.Check(b.sys.AwaitAgent(ctx))
	b.Await(ctx, time.Minute, tick, func() {
		if n := len(run.Must(b.client.Apps().List(ctx, ""))); n < b.Apps {
			run.Failf("the agent knows %d Apps of %d", n, b.Apps)
		}
	})
	b.Add("restart_seconds", time.Since(start).Seconds())
	add("restart_")
}

const (
	unmanagedNamespaces = 10
	// fillTimeout is the time for simulated pods to report that they run.
	fillTimeout     = 20 * time.Minute
	healthyInterval = 5 * time.Second
)

// fillApps deploys the Apps into namespaces whose pods go to simulated nodes. It waits until all
// are healthy and the agent has reported that to the control plane, which is its last step of a
// rollout. The next measurement is of an agent beside these Apps, and not of one that is still
// creating them.
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
	var list struct {
		Items []struct{ Status v1alpha1.Status }
	}
	run.Check(json.Unmarshal(run.Must(b.kube.CoreV1().RESTClient().Get().AbsPath("/apis/pipeops.io/v1alpha1/apps").DoRaw(ctx)), &list))
	for _, a := range list.Items {
		if said := a.Status.Announced; a.Status.Phase == runnerapi.PhaseHealthy && said != nil && said.Phase == runnerapi.PhaseHealthy {
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
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "another"}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: othersName(i), Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{
			Name: "main", Image: "apps.test/others:1", Env: []corev1.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "MODE", Value: "production"}},
		}}},
	}
}
