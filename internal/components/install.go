package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

const (
	// applyTimeout bounds the writing of one chart's objects. Nothing waits for their pods.
	applyTimeout = 2 * time.Minute
	maxHistory   = 3
	// chartMemory is reserved for a chart until its objects are applied, in bytes. It is a generous
	// estimate: the charts are known, and the largest has 234 KiB, packed.
	chartMemory = 96 << 20
	// brokenAfter is the age at which a run that has not ended is taken for one that broke off.
	brokenAfter = 2 * applyTimeout
)

// Installer carries out plans, with the rights of a Kubernetes configuration.
type Installer struct {
	Config *rest.Config
	Client kubernetes.Interface
	Charts Source
	// Tell, if set, receives each step before it is carried out.
	Tell func(Step)
}

// Apply installs and upgrades what a plan says, and returns when all objects are applied. It does
// not wait for pods. It leaves out a component whose chart cannot be fetched, and stops at any
// other error: a later run continues from there.
func (i *Installer) Apply(ctx context.Context, plan Plan) error {
	if plan.isEmpty() {
		return nil
	}
	if err := i.ensureNamespaces(ctx, plan); err != nil {
		return err
	}
	var unfetched []error
	for _, step := range plan.Steps {
		if step.Action == Skip {
			continue
		}
		err := i.step(ctx, step, plan.agentNamespace)
		if noChart := (*unfetchedError)(nil); errors.As(err, &noChart) && ctx.Err() == nil {
			unfetched = append(unfetched, fmt.Errorf("component %s: %w", step.Component, err))
			continue
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("the run was stopped; run it again, and it continues from there: %w", ctx.Err())
		}
		if err != nil {
			return errors.Join(append(unfetched, fmt.Errorf("component %s: %w", step.Component, err))...)
		}
	}
	return errors.Join(unfetched...)
}

// unfetchedError is the error of a chart that cannot be fetched.
type unfetchedError struct{ error }

func (e *unfetchedError) Unwrap() error { return e.error }

// isEmpty reports whether a plan is about no component.
func (p *Plan) isEmpty() bool {
	return !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action != Skip })
}

func (i *Installer) ensureNamespaces(ctx context.Context, plan Plan) error {
	names := append([]string{}, Namespaces...)
	for _, s := range plan.Steps {
		if s.Namespace != "" {
			names = append(names, s.Namespace)
		}
	}
	for _, name := range names {
		_, err := i.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return translated(err, "creating namespace "+name)
		}
	}
	return nil
}

func (i *Installer) step(ctx context.Context, step Step, agentNamespace string) error {
	if i.Tell != nil && step.Action != Keep {
		i.Tell(step)
	}
	// Also if nothing changes: the agent may have been reinstalled, without its Secret.
	if step.Component == ofAlerts {
		if err := i.ensureAlertsToken(ctx, agentNamespace); err != nil {
			return err
		}
	}
	for n := range step.releases {
		r := &step.releases[n]
		if r.isAsPlanned() {
			continue
		}
		if err := i.put(ctx, step, r); err != nil {
			return fmt.Errorf("chart %s %s: %w", r.chart.Name, r.chart.Version, err)
		}
	}
	return nil
}

// put installs a release, or upgrades what an earlier run has made.
func (i *Installer) put(ctx context.Context, step Step, r *planned) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	hold, err := memory.Acquire(ctx, "", "component "+step.Component, chartMemory)
	if err != nil {
		return err
	}
	defer hold.Release()
	ch, err := i.Charts.load(ctx, r.chart)
	if err != nil {
		return err
	}
	cfg, err := configuration(i.Config, step.Namespace)
	if err != nil {
		return err
	}
	last, err := lastOf(cfg, r.chart.Name)
	if err != nil {
		return err
	}
	labels := map[string]string{labelComponent: step.Component, labelChart: r.chart.Version, labelDigest: r.digest}
	if last != nil {
		if err := goOn(cfg, last, step.Component); err != nil {
			return err
		}
	}
	if err := chartutil.ProcessDependencies(ch, r.values); err != nil {
		return explained(err)
	}
	render.KeepNulls(ch, r.values)
	if err := ensureDefinitions(ctx, cfg, ch); err != nil {
		return err
	}
	if last == nil {
		return explained(install(ctx, cfg, step.Namespace, ch, r, labels))
	}
	return explained(upgrade(ctx, cfg, step.Namespace, ch, r, labels))
}

func install(ctx context.Context, cfg *action.Configuration, namespace string, ch *chart.Chart, r *planned, labels map[string]string) error {
	do := action.NewInstall(cfg)
	do.ReleaseName, do.Namespace, do.Timeout, do.Labels = r.chart.Name, namespace, applyTimeout, labels
	do.WaitStrategy, do.DisableHooks = kube.HookOnlyStrategy, true
	do.SkipCRDs = true // ensureDefinitions has applied them
	// The API server validates objects. Schemas of values refer to other hosts, F5's for example.
	do.DisableOpenAPIValidation, do.SkipSchemaValidation = true, true
	_, err := do.RunWithContext(ctx, ch, r.values)
	return err
}

func upgrade(ctx context.Context, cfg *action.Configuration, namespace string, ch *chart.Chart, r *planned, labels map[string]string) error {
	do := action.NewUpgrade(cfg)
	do.Namespace, do.Timeout, do.Labels, do.MaxHistory = namespace, applyTimeout, labels, maxHistory
	do.WaitStrategy, do.DisableHooks, do.ServerSideApply, do.ResetValues = kube.HookOnlyStrategy, true, "true", true
	do.DisableOpenAPIValidation, do.SkipSchemaValidation = true, true
	_, err := do.RunWithContext(ctx, r.chart.Name, ch, r.values)
	return err
}

// lastOf returns the newest revision of a release; nil for none.
func lastOf(cfg *action.Configuration, name string) (*release.Release, error) {
	found, err := cfg.Releases.Last(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, translated(err, "reading Helm release "+name)
	}
	last, ok := found.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("release %s is of an unknown version", name)
	}
	return last, nil
}

// goOn prepares a release for an upgrade. It refuses one that this package did not make, and marks
// a run that broke off as failed, which Helm wants.
func goOn(cfg *action.Configuration, last *release.Release, component string) error {
	if last.Labels[labelComponent] != component {
		return problem.Errorf(problem.Conflict, "set the mode of "+component+" to never, or remove that release",
			"release %s in namespace %s belongs to another client", last.Name, last.Namespace)
	}
	if !last.Info.Status.IsPending() {
		return nil
	}
	if age := time.Since(last.Info.LastDeployed); age.Abs() < brokenAfter {
		return problem.Errorf(problem.Busy, fmt.Sprintf("wait for its end; a run counts as interrupted after %s", brokenAfter),
			"another run is at work on release %s since %s", last.Name, age.Round(time.Second))
	}
	last.SetStatus(common.StatusFailed, "the run broke off")
	return translated(cfg.Releases.Update(last), "noting that a run broke off")
}
