package sizing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// errNoResize means that Kubernetes cannot resize these pods in place: it is older than 1.33, or
// the change would put them into another QoS class.
var errNoResize = errors.New("pods are not resized in place")

// fit applies the recommendation when it is worth it and nothing else is going
// on. Applied in place, pods that come later start with what the spec asks for
// and are resized when the App is healthy again.
func (s *Sizer) fit(ctx context.Context, a *v1alpha1.App, pods []*corev1.Pod, status *v1alpha1.SizingStatus) error {
	want, rec, wait := s.wanted(a, status.Applied)
	if wait == "" && a.Status.Phase != runnerapi.PhaseHealthy || !a.Observed() {
		wait = "the App is not healthy, or a rollout is in progress"
	}
	if status.Waiting = wait; wait != "" {
		return nil
	}
	change := status.Applied == nil || differs(*status.Applied, want)
	if !change {
		want = *status.Applied
	}
	if !change && status.Applied.By == v1alpha1.ByRollout {
		return nil
	}
	n, err := s.attempt(ctx, a, pods, &want, status.Applied)
	if err != nil {
		return err
	}
	if status.Waiting = undelivered(pods); !change && want.By == v1alpha1.ByResize {
		return nil
	}
	from := workload.Requested(a)
	if status.Applied != nil {
		from = *status.Applied
	}
	want.At = s.now().UTC().Format(time.RFC3339)
	status.Applied = &want
	s.store.Record(ctx, a, "RightSized", story(from, want, rec, n))
	return nil
}

// attempt resizes in place if possible. An App that had to be rolled out once keeps using rollouts:
// returning would need a rollout without any other benefit.
func (s *Sizer) attempt(ctx context.Context, a *v1alpha1.App, pods []*corev1.Pod, want, applied *v1alpha1.AppliedSizing) (int, error) {
	if want.By = v1alpha1.ByRollout; applied != nil && applied.By == v1alpha1.ByRollout {
		return 0, nil
	}
	n, err := s.resize(ctx, a, pods, *want)
	if errors.Is(err, errNoResize) {
		return 0, nil
	}
	want.By = v1alpha1.ByResize
	return n, err
}

// wanted returns what would be applied, or why nothing is.
func (s *Sizer) wanted(a *v1alpha1.App, applied *v1alpha1.AppliedSizing) (v1alpha1.AppliedSizing, runnerapi.Recommendation, string) {
	all := s.histories(a)
	i := slices.IndexFunc(all, func(h namedHistory) bool { return h.name == a.Name })
	if i < 0 {
		return v1alpha1.AppliedSizing{}, runnerapi.Recommendation{}, "nothing was measured yet"
	}
	rec := recommend(a, a.Name, all[i].history)
	want := v1alpha1.AppliedSizing{CPU: rec.CPU.Request, Memory: rec.Memory.Request}
	if applied == nil {
		if rec.Samples < s.timing.MinSamples {
			return want, rec, fmt.Sprintf("fewer than %d measurements", s.timing.MinSamples)
		}
		return want, rec, ""
	}
	if at, err := time.Parse(time.RFC3339, applied.At); err == nil && s.now().Sub(at) < s.timing.Settle {
		return *applied, rec, "" // not again so soon, but for pods that are new
	}
	return want, rec, ""
}

// resize changes the requests of the pods that differ, and returns their number.
func (s *Sizer) resize(ctx context.Context, a *v1alpha1.App, pods []*corev1.Pod, want v1alpha1.AppliedSizing) (int, error) {
	n := 0
	for _, pod := range pods {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == a.Name })
		if i < 0 || !pod.DeletionTimestamp.IsZero() || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		have := workload.RequestsOf(pod.Spec.Containers[i].Resources)
		if have.CPU == want.CPU && have.Memory == want.Memory {
			continue
		}
		if err := s.resizePod(ctx, pod, a.Name, want); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (s *Sizer) resizePod(ctx context.Context, pod *corev1.Pod, container string, want v1alpha1.AppliedSizing) error {
	cpu, memory := workload.Quantities(want)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name":      container,
		"resources": map[string]any{"requests": map[string]string{"cpu": cpu, "memory": memory}},
	}}}})
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = s.store.Live.SubResource("resize").Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch),
		&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldManager: objectmeta.FieldManager}})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), "could not find the requested resource"),
		apierrors.IsInvalid(err), apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("%w: %w", errNoResize, err)
	}
	return client.IgnoreNotFound(err) // a pod that went meanwhile needs nothing
}

// undelivered returns what keeps a node from giving what was asked for.
func undelivered(pods []*corev1.Pod) string {
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
				return fmt.Sprintf("the node of pod %s cannot give it now (%s): %s", pod.Name, c.Reason, v1alpha1.Bounded(c.Message))
			}
		}
	}
	return ""
}

// release gives pods that were resized what the spec asks for, once no rollout
// is in progress. A pod template follows the spec by itself.
func (s *Sizer) release(ctx context.Context, a *v1alpha1.App, pods []*corev1.Pod, status *v1alpha1.SizingStatus) error {
	status.Waiting = ""
	if status.Applied == nil || a.Status.Phase != runnerapi.PhaseHealthy || !a.Observed() {
		return nil
	}
	if status.Applied.By == v1alpha1.ByResize {
		if _, err := s.resize(ctx, a, pods, workload.Requested(a)); err != nil && !errors.Is(err, errNoResize) {
			return err
		}
	}
	from, to := *status.Applied, workload.Requested(a)
	status.Applied = nil
	s.store.Record(ctx, a, "RightSizingOff", "right-sizing no longer applies its figures: "+move(from, to))
	return nil
}

// retire forgets an App that turned right-sizing off.
func (s *Sizer) retire(ctx context.Context, a *v1alpha1.App) error {
	pods, err := s.store.Pods(ctx, a)
	if err != nil {
		return err
	}
	status := a.Status.Sizing.DeepCopy()
	if err := s.release(ctx, a, pods, status); err != nil {
		return fmt.Errorf("give App %s its own requests back: %w", a.Key(), err)
	}
	if status.Applied != nil {
		return nil // a rollout goes first
	}
	return s.write(ctx, a, nil)
}

// story returns what was done and why.
func story(from, to v1alpha1.AppliedSizing, rec runnerapi.Recommendation, resized int) string {
	how := "by a rollout, since these pods cannot be resized in place"
	if to.By == v1alpha1.ByResize {
		how = fmt.Sprintf("in place, on %d pods", resized)
	}
	fromCPU, fromMemory := rec.CPU, rec.Memory
	return fmt.Sprintf("%s, %s; CPU: 95 %% of %d measurements since %s at most %dm, plus %d %%%s; memory: at most %d Mi, plus %d %%%s",
		move(from, to), how, rec.Samples, rec.Since.Format(time.DateOnly), fromCPU.P95, fromCPU.Margin, because(fromCPU),
		fromMemory.Peak>>20, fromMemory.Margin, because(fromMemory))
}

func because(f runnerapi.Fit) string {
	if f.Bound == "" {
		return ""
	}
	return ", but " + map[string]string{
		"floor": "no less than the floor", "min": "no less than rightSizing's min",
		"max": "no more than rightSizing's max", "limit": "no more than the limit",
	}[f.Bound]
}

func move(from, to v1alpha1.AppliedSizing) string {
	fromCPU, fromMemory := workload.Quantities(from)
	toCPU, toMemory := workload.Quantities(to)
	return fmt.Sprintf("requests of CPU %s -> %s, of memory %s -> %s", fromCPU, toCPU, fromMemory, toMemory)
}
