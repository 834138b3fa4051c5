package helm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// waiter waits by polling every second. Helm's own waiter watches every object of the release, for
// which the agent would need the right to watch Secrets. It also reports less about what it waits
// for.
type waiter struct {
	*cluster
	client kubernetes.Interface
}

const waitStep = time.Second

// Wait implements kube.Waiter.
func (w *waiter) Wait(list kube.ResourceList, limit time.Duration) error {
	ready := kube.NewReadyChecker(w.client, kube.PausedAsReady(true))
	return w.poll(list, limit, "become ready", w.checking(ready.IsReady, false))
}

// WaitWithJobs implements kube.Waiter.
func (w *waiter) WaitWithJobs(list kube.ResourceList, limit time.Duration) error {
	ready := kube.NewReadyChecker(w.client, kube.PausedAsReady(true), kube.CheckJobs(true))
	return w.poll(list, limit, "become ready", w.checking(ready.IsReady, true))
}

// WaitForDelete implements kube.Waiter. It reports what holds the objects. What is not gone in time
// ends an uninstall: the release stays.
func (w *waiter) WaitForDelete(list kube.ResourceList, limit time.Duration) error {
	api, _, err := w.objects()
	if err != nil {
		return err
	}
	err = w.poll(list, limit, "go", w.leaving(api))
	if err != nil && w.removes {
		w.mu.Lock()
		w.left = err
		w.mu.Unlock()
	}
	return err
}

// leaving checks whether an object is gone, or another one of its name came.
func (w *waiter) leaving(api dynamic.Interface) check {
	deleted := map[*resource.Info]types.UID{}
	waits := map[*resource.Info]error{}
	return func(ctx context.Context, info *resource.Info) (bool, error) {
		err := info.Get()
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		o, err := objectOf(info)
		if err != nil {
			return false, err
		}
		if uid, seen := deleted[info]; seen && uid != o.GetUID() {
			return true, nil
		}
		deleted[info] = o.GetUID()
		now, going := workloadhealth.Going(ctx, api, o.Unstructured)
		switch {
		case !going:
			return false, nil
		case ctx.Err() != nil: // its pods were not read to the end
			return false, waits[info]
		}
		waits[info] = errors.New(clip(now.Message))
		w.say("%s is being deleted; it %v", named(info), waits[info])
		return false, waits[info]
	}
}

// WatchUntilReady implements kube.Waiter, for hooks, whose Jobs and Pods must end.
func (w *waiter) WatchUntilReady(list kube.ResourceList, limit time.Duration) error {
	since := map[*resource.Info]time.Time{}
	return w.poll(list, limit, "end", func(ctx context.Context, info *resource.Info) (bool, error) {
		kind := info.Mapping.GroupVersionKind.GroupKind().String()
		if kind != "Job.batch" && kind != "Pod" {
			return true, nil
		}
		if err := info.Get(); err != nil {
			return false, err
		}
		o, err := objectOf(info)
		if err != nil {
			return false, err
		}
		if done, _ := ended(o); done || w.workloads == nil {
			return ended(o)
		}
		report, _, err := w.workloads.Check(ctx, o.Unstructured)
		switch {
		case err != nil:
			return false, err
		case report.State == runnerapi.ObjectFailed:
			return false, w.broken(report, info, since)
		}
		delete(since, info)
		if report.Message == "" {
			return ended(o)
		}
		return false, errors.New(report.Message)
	})
}

// ended reports whether a hook's Job or Pod is done, and returns its failure.
func ended(o *object) (bool, error) {
	if o.GetKind() == "Pod" {
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		if phase == "Failed" {
			return false, hookError{o.String() + " failed"}
		}
		return phase == "Succeeded", nil
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, raw := range conditions {
		c, _ := raw.(map[string]any)
		switch {
		case c["status"] != "True":
		case c["type"] == "Complete":
			return true, nil
		case c["type"] == "Failed":
			return false, hookError{fmt.Sprintf("%s failed: %v", o, c["message"])}
		}
	}
	return false, nil
}

// hookError is a failure that no further waiting can change.
type hookError struct{ what string }

func (f hookError) Error() string { return f.what }

// poll checks each object until all are done, one fails for good, or time is up.
func (w *waiter) poll(list kube.ResourceList, limit time.Duration, verb string, done func(context.Context, *resource.Info) (bool, error)) error {
	w.waits()
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	left := append(kube.ResourceList(nil), list...)
	ticker := time.NewTicker(waitStep)
	defer ticker.Stop()
	said := 0
	for {
		var last error
		for len(left) > 0 {
			if n := len(list) - len(left) + 1; n != said { // then the check has more to say
				w.say("waiting for %s to %s (%d of %d)", named(left[0]), verb, n, len(list))
				said = n
			}
			ok, err := done(ctx, left[0])
			if err != nil && !passing(err) {
				return fmt.Errorf("%s: %w", named(left[0]), err)
			}
			if last = err; !ok {
				break
			}
			left = left[1:]
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if w.ctx.Err() != nil {
				return fmt.Errorf("waiting for %s to %s was given up: %w", named(left[0]), verb, context.Cause(w.ctx))
			}
			if last != nil {
				return fmt.Errorf("%s did not %s within %s: %w", named(left[0]), verb, limit, last)
			}
			return fmt.Errorf("%s did not %s within %s", named(left[0]), verb, limit)
		}
	}
}

// passing reports whether to check again.
func passing(err error) bool {
	if _, final := err.(hookError); final { //nolint:errorlint // ours, never wrapped
		return false
	}
	return !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)
}
