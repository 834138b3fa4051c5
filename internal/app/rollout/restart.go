package rollout

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Restart replaces all pods, a few at a time; a Job it runs again. The time of the restart is part
// of the pod template, so Kubernetes does it as a rolling update.
func (w *Writer) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	a, err := w.change(ctx, key, opts, func(a *v1alpha1.App) error {
		if a.Spec.Type == runnerapi.TypeCronJob {
			return problem.Errorf(problem.Invalid, "wait for its next run; a run in progress ends by itself",
				"App %s is a CronJob, which has no pods that could be restarted", key)
		}
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, objectmeta.RestartedAt, w.now().UTC().Format(time.RFC3339Nano))
		return nil
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "restarting App "+key.String())
	}
	return a.Wire(), nil
}
