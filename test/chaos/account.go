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
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// apps returns all Apps there are, read past the agent.
func (c *chaos) apps(ctx context.Context) ([]v1alpha1.App, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(v1alpha1.GroupVersion.String())
	list.SetKind(v1alpha1.Kind + "List")
	if err := c.sys.Kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	apps := make([]v1alpha1.App, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &apps[i]); err != nil {
			return nil, err
		}
	}
	return apps, nil
}

// appsSettled returns which App is still on its way, or was not announced as it is.
func (c *chaos) appsSettled(ctx context.Context) error {
	apps, err := c.apps(ctx)
	if err != nil {
		return err
	}
	for i := range apps {
		a, s := &apps[i], &apps[i].Status
		switch {
		case a.DeletionTimestamp != nil:
			return fmt.Errorf("the App %s is being deleted", a.Name)
		case s.ObservedGeneration != a.Generation || s.Phase != runnerapi.PhaseHealthy:
			return fmt.Errorf("the App %s of generation %d is %s at generation %d", a.Name, a.Generation, s.Phase, s.ObservedGeneration)
		case s.Announced == nil || s.Announced.Generation != a.Generation || s.Announced.Phase != s.Phase:
			return fmt.Errorf("the App %s was not announced as it is", a.Name)
		}
	}
	return nil
}

// allHeard returns what the Runner does not know.
func (c *chaos) allHeard(ctx context.Context) error {
	list, err := c.listener.runner.snapshots.Agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range list {
		if problems := ledger.Heard(c.listener.all(), a.Sequence); len(problems) > 0 {
			return errors.New(problems[0])
		}
	}
	if problems := ledger.Known(c.listener.directory.List(), list); len(problems) > 0 {
		return errors.New(problems[0])
	}
	apps, err := c.apps(ctx)
	if err != nil {
		return err
	}
	if problems := ledger.Told(c.listener.all(), generations(apps)); len(problems) > 0 {
		return errors.New(problems[0])
	}
	return nil
}

func generations(apps []v1alpha1.App) map[string]int64 {
	all := map[string]int64{}
	for i := range apps {
		all[apps[i].Name] = apps[i].Generation
	}
	return all
}

// account takes stock of everything while nothing happens.
func (c *chaos) account(ctx context.Context, r round) error {
	b, err := c.compare(ctx)
	if err != nil {
		return err
	}
	problems := slices.Concat(b.problems, c.dead(ctx), c.grown(ctx, r))
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
func (c *chaos) compare(ctx context.Context) (balance, error) {
	commands, err := c.ledger.Commands()
	if err != nil {
		return balance{}, fmt.Errorf("the ledger was not written: %w", err)
	}
	held, err := c.held(ctx)
	if err != nil {
		return balance{}, err
	}
	audited, excused := c.audited(commands)
	problems := slices.Concat(ledger.Effects(commands, held), ledger.Chain(c.auditor.all()), audited)
	if said, err := c.verifyAudit(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("audit verify: %v: %s", err, said))
	}
	return balance{problems: problems, objects: len(held), excused: excused}, nil
}

// held returns what the cluster holds of what the agent made, read past the agent.
func (c *chaos) held(ctx context.Context) (map[ledger.Target]ledger.Held, error) {
	held := map[ledger.Target]ledger.Held{}
	apps, err := c.apps(ctx)
	if err != nil {
		return nil, err
	}
	for i := range apps {
		if held[ledger.Target{Object: "App", Name: apps[i].Name}], err = c.heldApp(ctx, &apps[i]); err != nil {
			return nil, err
		}
	}
	ours := metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent}
	secrets, err := c.sys.Kube.Clientset.CoreV1().Secrets(namespace).List(ctx, ours)
	if err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		held[ledger.Target{Object: "Secret", Name: s.Name}] = ledger.Held{State: ledger.State{Exists: true, Value: string(s.Data[valueKey])}}
	}
	configs, err := c.sys.Kube.Clientset.CoreV1().ConfigMaps(namespace).List(ctx, ours)
	if err != nil {
		return nil, err
	}
	for _, m := range configs.Items {
		held[ledger.Target{Object: "ConfigMap", Name: m.Name}] = ledger.Held{State: ledger.State{Exists: true, Value: m.Data[valueKey]}}
	}
	return held, nil
}

// heldApp returns an App with its state: its Deployment must match the App.
func (c *chaos) heldApp(ctx context.Context, a *v1alpha1.App) (ledger.Held, error) {
	is := ledger.State{Exists: true, Value: value(a.Spec.Env), Generation: a.Generation, RestartedAt: a.Annotations[objectmeta.RestartedAt]}
	if a.Spec.Replicas != nil {
		is.Replicas = *a.Spec.Replicas
	}
	d, err := c.sys.Kube.Clientset.AppsV1().Deployments(namespace).Get(ctx, a.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ledger.Held{State: ledger.State{Value: "an App without a Deployment"}}, nil
	}
	if err != nil {
		return ledger.Held{}, err
	}
	if got := deployed(d); got != [2]any{is.Value, is.Replicas} || d.Status.ReadyReplicas != is.Replicas {
		is.Value = fmt.Sprintf("%s, and a Deployment of %v with %d ready", is.Value, got, d.Status.ReadyReplicas)
	}
	return ledger.Held{State: is, Rollouts: d.Generation}, nil
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
