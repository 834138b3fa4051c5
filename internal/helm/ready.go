package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type check = func(context.Context, *resource.Info) (bool, error)

// checking checks workloads as Apps are checked, and leaves the rest to Helm. It waits for Jobs if
// jobs is true; it reports a failed Job in any case.
func (w *waiter) checking(helms check, jobs bool) check {
	if w.workloads == nil {
		return helms
	}
	since := map[*resource.Info]time.Time{}
	return func(ctx context.Context, info *resource.Info) (bool, error) {
		if err := info.Get(); err != nil {
			return false, err
		}
		o, err := objectOf(info)
		if err != nil {
			return false, err
		}
		report, runs, err := w.workloads.Check(ctx, o.Unstructured)
		switch {
		case err != nil:
			return false, err
		case !runs:
			return helms(ctx, info)
		case report.State == runnerapi.ObjectReady:
			return true, nil
		case report.State == runnerapi.ObjectFailed:
			return false, w.broken(report, info, since)
		case o.kind() == "Job.batch" && !jobs:
			return true, nil
		}
		delete(since, info)
		w.say("%s %s", named(info), report.Message)
		return false, errors.New(report.Message)
	}
}

// temporary are causes that go by themselves: parts of a chart start side by side, images are
// pulled again, nodes and volumes come. All other causes are final at once, as for an App:
// what a chart brings was made before anything is waited for.
var temporary = []runnerapi.Cause{
	runnerapi.CauseCrashLoop, runnerapi.CauseProbeFailing, runnerapi.CauseImagePullFailed, runnerapi.CauseUnschedulable,
	runnerapi.CauseVolumeNotBound, runnerapi.CauseNodeLost, runnerapi.CauseEvicted, runnerapi.CausePortNotListening,
}

// broken returns a final error at once, or after a while for what may recover.
func (w *waiter) broken(r workloadhealth.Report, info *resource.Info, since map[*resource.Info]time.Time) error {
	begun, known := since[info]
	if !known {
		begun = time.Now()
		since[info] = begun
	}
	what := fmt.Sprintf("%s (%s; fix: %s)", r.Message, r.Diagnosis.Cause, r.Diagnosis.Fix)
	w.say("%s: %s", named(info), r.Message)
	if slices.Contains(temporary, r.Diagnosis.Cause) && time.Since(begun) < w.patience {
		return errors.New(what)
	}
	return hookError{what}
}

// describeState puts into a release's objects how those are that run pods.
func (r *Releases) describeState(ctx context.Context, namespace string, objects []*object, out []runnerapi.ReleaseObject) error {
	if r.opts.Workloads == nil {
		return nil
	}
	for i, o := range objects {
		if o.hook != "" {
			continue
		}
		if !input.RunsPods(o.kind()) && !slices.Contains([]string{"App.pipeops.io", autoscaler}, o.kind()) {
			continue
		}
		report, err := r.stateOf(ctx, namespace, o)
		if err != nil {
			return err
		}
		out[i].State, out[i].Message, out[i].Diagnosis, out[i].LastLines = report.State, report.Message, report.Diagnosis, report.LastLines
	}
	return nil
}

// stateOf reads an object of a release, and returns its state.
func (r *Releases) stateOf(ctx context.Context, namespace string, o *object) (workloadhealth.Report, error) {
	api, err := r.reader()
	if err != nil {
		return workloadhealth.Report{}, err
	}
	resource, known := resources[o.kind()]
	if !known {
		return workloadhealth.Report{}, nil
	}
	live, err := api.Resource(resource).Namespace(namespace).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return workloadhealth.Report{State: runnerapi.ObjectMissing, Message: "it is not in the cluster"}, nil
	case err != nil:
		return workloadhealth.Report{State: runnerapi.ObjectUnknown, Message: kubeproblem.From(err, "reading it").Error()}, nil
	}
	if now, going := workloadhealth.Going(ctx, api, live); going {
		now.Message = clip(now.Message)
		return now, nil
	}
	report, _, err := r.opts.Workloads.Check(ctx, live)
	return report, err
}

const autoscaler = "HorizontalPodAutoscaler.autoscaling"

// resources are the kinds whose state is reported.
var resources = map[string]schema.GroupVersionResource{
	"Pod":              {Version: "v1", Resource: "pods"},
	"Deployment.apps":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"StatefulSet.apps": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"DaemonSet.apps":   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"ReplicaSet.apps":  {Group: "apps", Version: "v1", Resource: "replicasets"},
	"Job.batch":        {Group: "batch", Version: "v1", Resource: "jobs"},
	"CronJob.batch":    {Group: "batch", Version: "v1", Resource: "cronjobs"},
	autoscaler:         {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	"App.pipeops.io":   {Group: "pipeops.io", Version: "v1alpha1", Resource: "apps"},
}

// reader returns the client, which is created on first use.
func (r *Releases) reader() (dynamic.Interface, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects != nil {
		return r.objects, nil
	}
	rc := rest.CopyConfig(r.config)
	rc.Timeout = requestTimeout
	made, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	r.objects = made
	return made, nil
}

// rolledBack reports whether a revision went back because the one before it failed.
func rolledBack(now *release.Release, before record) bool {
	return before.status == common.StatusFailed && now.Info.Status == common.StatusDeployed &&
		strings.HasPrefix(now.Info.Description, "Rollback to ")
}

func undoneOf(d driver.Driver, r record) (*runnerapi.ReleaseUndone, error) {
	failed, err := one(d, r)
	if errors.Is(err, errRemoved) {
		return &runnerapi.ReleaseUndone{Revision: r.version}, nil
	}
	if err != nil {
		return nil, err
	}
	return &runnerapi.ReleaseUndone{Revision: r.version, Description: clip(failed.Info.Description)}, nil
}
