package app

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

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// How a recommendation is applied.
const (
	byResize  = "Resize"  // the pods that run, in place
	byRollout = "Rollout" // a new pod template, and so new pods
)

// errNoResize means that Kubernetes cannot resize these pods in place: it is older than 1.33, or
// the change would put them into another QoS class.
var errNoResize = errors.New("pods are not resized in place")

// fit applies the recommendation when it is worth it and nothing else is going
// on. Applied in place, pods that come later start with what the spec asks for
// and are resized when the App is healthy again.
func (s *sizer) fit(ctx context.Context, a *App, pods []*corev1.Pod, status *SizingStatus) error {
	want, rec, wait := s.wanted(a, status.Applied)
	if wait == "" && a.Status.Phase != runnerapi.PhaseHealthy || !a.observed() {
		wait = "the App is not healthy, or a rollout is under way"
	}
	if status.Waiting = wait; wait != "" {
		return nil
	}
	change := status.Applied == nil || differs(*status.Applied, want)
	if !change {
		want = *status.Applied
	}
	if !change && status.Applied.By == byRollout {
		return nil
	}
	n, err := s.attempt(ctx, a, pods, &want, status.Applied)
	if err != nil {
		return err
	}
	if status.Waiting = undelivered(pods); !change && want.By == byResize {
		return nil
	}
	from := asked(a)
	if status.Applied != nil {
		from = *status.Applied
	}
	want.At = s.e.now().UTC().Format(time.RFC3339)
	status.Applied = &want
	s.e.record(ctx, a, "RightSized", story(from, want, rec, n))
	return nil
}

// attempt resizes in place if possible. An App that had to be rolled out once keeps using rollouts:
// returning would need a rollout without any other benefit.
func (s *sizer) attempt(ctx context.Context, a *App, pods []*corev1.Pod, want, applied *AppliedSizing) (int, error) {
	if want.By = byRollout; applied != nil && applied.By == byRollout {
		return 0, nil
	}
	n, err := s.resize(ctx, a, pods, *want)
	if errors.Is(err, errNoResize) {
		return 0, nil
	}
	want.By = byResize
	return n, err
}

// wanted returns what would be applied, or why nothing is.
func (s *sizer) wanted(a *App, applied *AppliedSizing) (AppliedSizing, runnerapi.Recommendation, string) {
	all := s.histories(a)
	i := slices.IndexFunc(all, func(h namedHistory) bool { return h.name == a.Name })
	if i < 0 {
		return AppliedSizing{}, runnerapi.Recommendation{}, "nothing was measured yet"
	}
	rec := recommend(a, a.Name, all[i].history)
	want := AppliedSizing{CPU: rec.CPU.Request, Memory: rec.Memory.Request}
	if applied == nil {
		if rec.Samples < s.timing.MinSamples {
			return want, rec, fmt.Sprintf("fewer than %d measurements", s.timing.MinSamples)
		}
		return want, rec, ""
	}
	if at, err := time.Parse(time.RFC3339, applied.At); err == nil && s.e.now().Sub(at) < s.timing.Settle {
		return *applied, rec, "" // not again so soon, but for pods that are new
	}
	return want, rec, ""
}

// resize changes the requests of the pods that differ, and returns their number.
func (s *sizer) resize(ctx context.Context, a *App, pods []*corev1.Pod, want AppliedSizing) (int, error) {
	n := 0
	for _, pod := range pods {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == a.Name })
		if i < 0 || !pod.DeletionTimestamp.IsZero() || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		have := requestsOf(pod.Spec.Containers[i].Resources)
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

func (s *sizer) resizePod(ctx context.Context, pod *corev1.Pod, container string, want AppliedSizing) error {
	cpu, memory := quantities(want)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name":      container,
		"resources": map[string]any{"requests": map[string]string{"cpu": cpu, "memory": memory}},
	}}}})
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = s.e.live.SubResource("resize").Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch),
		&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldManager: managed.FieldManager}})
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
				return fmt.Sprintf("the node of pod %s cannot give it now (%s): %s", pod.Name, c.Reason, bounded(c.Message))
			}
		}
	}
	return ""
}

// release gives pods that were resized what the spec asks for, once no rollout
// is under way. A pod template follows the spec by itself.
func (s *sizer) release(ctx context.Context, a *App, pods []*corev1.Pod, status *SizingStatus) error {
	status.Waiting = ""
	if status.Applied == nil || a.Status.Phase != runnerapi.PhaseHealthy || !a.observed() {
		return nil
	}
	if status.Applied.By == byResize {
		if _, err := s.resize(ctx, a, pods, asked(a)); err != nil && !errors.Is(err, errNoResize) {
			return err
		}
	}
	from, to := *status.Applied, asked(a)
	status.Applied = nil
	s.e.record(ctx, a, "RightSizingOff", "right-sizing no longer applies its figures: "+move(from, to))
	return nil
}

// retire forgets an App that turned right-sizing off.
func (s *sizer) retire(ctx context.Context, a *App) error {
	pods, err := s.e.podsOf(ctx, a)
	if err != nil {
		return err
	}
	status := a.Status.Sizing.DeepCopy()
	if err := s.release(ctx, a, pods, status); err != nil {
		return fmt.Errorf("give App %s its own requests back: %w", a.key(), err)
	}
	if status.Applied != nil {
		return nil // a rollout goes first
	}
	return s.write(ctx, a, nil)
}

// story returns what was done and why.
func story(from, to AppliedSizing, rec runnerapi.Recommendation, resized int) string {
	how := "by a rollout, since these pods cannot be resized in place"
	if to.By == byResize {
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

func move(from, to AppliedSizing) string {
	fromCPU, fromMemory := quantities(from)
	toCPU, toMemory := quantities(to)
	return fmt.Sprintf("requests of CPU %s -> %s, of memory %s -> %s", fromCPU, toCPU, fromMemory, toMemory)
}

// record leaves a Kubernetes Event on the App, for kubectl describe and the
// App's events.
func (e *Engine) record(ctx context.Context, a *App, reason, message string) {
	now := metav1.NewTime(e.now())
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, GenerateName: a.Name + "-", Labels: managed.AppLabels(a.Name)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: GroupVersion.String(), Kind: Kind, Namespace: a.Namespace, Name: a.Name, UID: a.UID,
		},
		Type: corev1.EventTypeNormal, Reason: reason, Message: message[:min(len(message), maxEventMessage)],
		Source: corev1.EventSource{Component: managed.FieldManager}, ReportingController: managed.FieldManager,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if err := e.live.Create(ctx, ev, client.FieldOwner(managed.FieldManager)); err != nil {
		e.log.Warn().Err(err).Str("namespace", a.Namespace).Str("app", a.Name).Str("reason", reason).
			Msg("an event could not be recorded")
	}
}

// maxEventMessage is what Kubernetes takes.
const maxEventMessage = 1024
