package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// apps returns all Apps there are, read past the agent.
func (c *chaos) apps(ctx context.Context) []v1alpha1.App {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(v1alpha1.GroupVersion.String())
	list.SetKind(v1alpha1.Kind + "List")
	run.Check(c.sys.Kube.List(ctx, list, client.InNamespace(namespace)))
	apps := make([]v1alpha1.App, len(list.Items))
	for i := range list.Items {
		run.Check(runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &apps[i]))
	}
	return apps
}

// appsSettled fails with the App that is still on its way, or was not announced as it is.
func (c *chaos) appsSettled(ctx context.Context) {
	apps := c.apps(ctx)
	for i := range apps {
		a, s := &apps[i], &apps[i].Status
		switch {
		case a.DeletionTimestamp != nil:
			run.Failf("the App %s is being deleted", a.Name)
		case s.ObservedGeneration != a.Generation || s.Phase != runnerapi.PhaseHealthy:
			run.Failf("the App %s of generation %d is %s at generation %d", a.Name, a.Generation, s.Phase, s.ObservedGeneration)
		case s.Announced == nil || s.Announced.Generation != a.Generation || s.Announced.Phase != s.Phase:
			run.Failf("the App %s was not announced as it is", a.Name)
		}
	}
}

// allHeard fails with what the Runner does not know.
func (c *chaos) allHeard(ctx context.Context) {
	list := run.Must(c.listener.runner.snapshots.Agents(ctx))
	problems := append(ledger.Known(c.listener.directory.List(), list), ledger.Watched(c.listener.watched(), c.listener.all())...)
	for _, a := range list {
		problems = append(problems, ledger.Heard(c.listener.all(), a.Sequence)...)
	}
	generations := map[string]int64{}
	for _, a := range c.apps(ctx) {
		generations[a.Name] = a.Generation
	}
	run.Check(errors.Join(asErrors(append(problems, ledger.Told(c.listener.all(), generations)...))...))
}

// account takes stock of everything while nothing happens.
func (c *chaos) account(ctx context.Context, r round) error {
	var b balance
	if err := run.Try(func() { b = c.compare(ctx) }); err != nil {
		return err
	}
	problems := slices.Concat(b.problems, c.dead(), c.grown(ctx, r))
	c.books.balance(b.objects, b.excused, len(problems))
	c.say("%s", c.figures())
	if b.excused > 0 {
		c.say("%d acknowledged commands have no record in the audit log: their agent was killed before it had kept it", b.excused)
	}
	for _, p := range problems {
		c.say("DOES NOT BALANCE: %s", p)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d things do not balance; the first: %s", len(problems), problems[0])
	}
	c.say("the books balance: %d objects", b.objects)
	return nil
}

// balance is what a comparison of the books with the cluster and the audit log came to.
type balance struct {
	problems []string
	objects  int
	excused  int // commands that the audit log may miss
}

// compare compares the commands with what the cluster holds and with the audit log.
func (c *chaos) compare(ctx context.Context) balance {
	commands, held := run.Must(c.ledger.Commands()), c.held(ctx)
	audited, excused := c.audited(commands)
	problems := slices.Concat(ledger.Effects(commands, held), ledger.Chain(c.auditor.all()), audited)
	if said, err := c.verifyAudit(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("audit verify: %v: %s", err, said))
	}
	return balance{problems: problems, objects: len(held), excused: excused}
}

// held returns what the cluster holds of what the agent made, read past the agent.
func (c *chaos) held(ctx context.Context) map[ledger.Target]ledger.Held {
	held := map[ledger.Target]ledger.Held{}
	for _, a := range c.apps(ctx) {
		held[ledger.Target{Object: "App", Name: a.Name}] = c.heldApp(ctx, &a)
	}
	ours := metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent}
	for _, s := range run.Must(c.sys.Kube.Clientset.CoreV1().Secrets(namespace).List(ctx, ours)).Items {
		held[ledger.Target{Object: "Secret", Name: s.Name}] = ledger.Held{State: ledger.State{Exists: true, Value: string(s.Data[valueKey])}}
	}
	for _, m := range run.Must(c.sys.Kube.Clientset.CoreV1().ConfigMaps(namespace).List(ctx, ours)).Items {
		held[ledger.Target{Object: "ConfigMap", Name: m.Name}] = ledger.Held{State: ledger.State{Exists: true, Value: m.Data[valueKey]}}
	}
	return held
}

// heldApp returns an App with its state: its Deployment must match the App.
func (c *chaos) heldApp(ctx context.Context, a *v1alpha1.App) ledger.Held {
	is := ledger.State{Exists: true, Value: value(a.Spec.Env), Generation: a.Generation, RestartedAt: a.Annotations[objectmeta.RestartedAt]}
	if a.Spec.Replicas != nil {
		is.Replicas = *a.Spec.Replicas
	}
	d, err := c.sys.Kube.Clientset.AppsV1().Deployments(namespace).Get(ctx, a.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ledger.Held{State: ledger.State{Value: "an App without a Deployment"}}
	}
	run.Check(err)
	if got := deployed(d); got != [2]any{is.Value, is.Replicas} || d.Status.ReadyReplicas != is.Replicas {
		is.Value = fmt.Sprintf("%s, and a Deployment of %v with %d ready", is.Value, got, d.Status.ReadyReplicas)
	}
	return ledger.Held{State: is, Rollouts: d.Generation}
}

func value(env []runnerapi.EnvVar) string {
	for _, e := range env {
		if e.Name == valueVariable {
			return e.Value
		}
	}
	return ""
}

// deployed returns the value and the replicas of a Deployment.
func deployed(d *appsv1.Deployment) [2]any {
	of, replicas := "", int32(0)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if at := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == valueVariable }); at >= 0 {
			of = container.Env[at].Value
		}
	}
	return [2]any{of, replicas}
}
