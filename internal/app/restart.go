package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// keptKeys bounds how many Idempotency-Keys an App remembers.
const keptKeys = 16

// restart is when the App was last asked to restart, or empty.
func (a *App) restart() string { return a.Annotations[managed.RestartedAt] }

// Restart replaces all pods, a few at a time; a Job it runs again. The time of the restart is part
// of the pod template, so Kubernetes does it as a rolling update. Which keys
// were used is kept on the App, where a restart of the agent cannot lose it.
func (e *Engine) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	var a *App
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if a, err = e.getLive(ctx, key); err != nil {
			return err
		}
		if a.Spec.Type == runnerapi.TypeCronJob {
			return problem.Errorf(problem.Invalid, "wait for its next run; a run under way ends by itself",
				"App %s is a CronJob, which has no pods that could be restarted", key)
		}
		before := a.DeepCopy()
		if !useKey(a, opts.IdempotencyKey) {
			return nil
		}
		sign(a, opts.Caller)
		a.Annotations[managed.RestartedAt] = e.now().UTC().Format(time.RFC3339Nano)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return e.writer(opts).Patch(ctx, a, patch, client.FieldOwner(managed.FieldManager))
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "restarting App "+key.String())
	}
	return a.Wire(), nil
}

// useKey notes a key on the App and says whether it is new there.
func useKey(a *App, key string) bool {
	digest := digestOf(key)
	if digest == "" {
		return true
	}
	used := strings.Fields(a.Annotations[managed.CommandKeys])
	if slices.Contains(used, digest) {
		return false
	}
	used = append(used, digest)
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[managed.CommandKeys] = strings.Join(used[max(len(used)-keptKeys, 0):], " ")
	return true
}

func digestOf(idempotencyKey string) string {
	if idempotencyKey == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(idempotencyKey))
	return hex.EncodeToString(sum[:8])
}
