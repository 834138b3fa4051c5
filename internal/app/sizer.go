package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Sizing is how right-sizing measures. What is zero has its default.
type Sizing struct {
	Every      time.Duration // between two measurements; a minute
	Save       time.Duration // between two times that they are written down; a quarter of an hour
	Settle     time.Duration // between two changes of one App's requests; an hour
	MinSamples int64         // measurements before anything is applied; 60
}

func (s Sizing) withDefaults() Sizing {
	s.Every = cmp.Or(s.Every, time.Minute)
	s.Save = cmp.Or(s.Save, 15*time.Minute)
	s.Settle = cmp.Or(s.Settle, time.Hour)
	s.MinSamples = cmp.Or(s.MinSamples, 60)
	return s
}

// sizer measures all Apps, so that each has a recommendation to ask for: one
// request to metrics-server for a hundred of them. Of those that turned
// right-sizing on a week is kept in the App's status, written seldom: a restart
// of the agent loses a quarter of an hour of it. Of the others two days are kept,
// in memory alone. Every replica measures; the leader applies and writes.
type sizer struct {
	e      *Engine
	timing Sizing
	silent bool // metrics-server was missing last time, which was logged

	mu      sync.Mutex
	tracked map[types.UID]*tracked
}

// tracked is what is known of one App between two rounds.
type tracked struct {
	containers map[string]history
	seen       map[string]time.Time // newest measurement of each pod
	saved      time.Time
}

func newSizer(e *Engine, timing Sizing) *sizer {
	return &sizer{e: e, timing: timing.withDefaults(), tracked: map[types.UID]*tracked{}}
}

// Start implements manager.Runnable. It measures until ctx ends.
func (s *sizer) Start(ctx context.Context) error {
	ticker := time.NewTicker(s.timing.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !s.e.leadership.leads() {
			s.forget()
			continue
		}
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.complain(err)
		}
	}
}

// forget leaves the measuring to the replica that leads. What counts is in the
// Apps' status; what this one knows would be old when it leads again.
func (s *sizer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tracked)
}

// complain logs once that there is no metrics-server: repeated requests do not change that.
func (s *sizer) complain(err error) {
	if !noMetricsServer(err) {
		s.silent = false
		s.e.log.Warn().Err(err).Msg("right-sizing: not everything could be measured")
		return
	}
	if !s.silent {
		s.e.log.Info().Err(err).Msg("Apps are not measured")
	}
	s.silent = true
}

func noMetricsServer(err error) bool {
	p := &runnerapi.Error{}
	return errors.As(err, &p) && p.Code == runnerapi.CodeNotSupported
}

// round measures every App once.
func (s *sizer) round(ctx context.Context) error {
	var list List
	if err := s.e.cached.List(ctx, &list); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	byNamespace, alive := map[string][]*App{}, map[types.UID]bool{}
	var errs []error
	for i := range list.Items {
		a := &list.Items[i]
		ok, err := s.e.manages(ctx, a.Namespace)
		if err != nil || !ok || !a.DeletionTimestamp.IsZero() {
			errs = append(errs, err)
			continue
		}
		byNamespace[a.Namespace] = append(byNamespace[a.Namespace], a)
		alive[a.UID] = true
		if a.Spec.Sizing() == runnerapi.SizingOff && a.Status.Sizing != nil && s.e.leadership.leads() {
			errs = append(errs, s.retire(ctx, a))
		}
	}
	s.mu.Lock()
	maps.DeleteFunc(s.tracked, func(uid types.UID, _ *tracked) bool { return !alive[uid] })
	s.mu.Unlock()
	for namespace, apps := range byNamespace {
		for some := range slices.Chunk(apps, askedAtOnce) {
			err := s.measure(ctx, namespace, some)
			errs = append(errs, err)
			if noMetricsServer(err) {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// askedAtOnce bounds one answer of metrics-server, and the selector of the request.
const askedAtOnce = 100

func (s *sizer) measure(ctx context.Context, namespace string, apps []*App) error {
	names := make([]string, 0, len(apps))
	for _, a := range apps {
		names = append(names, a.Name)
	}
	used, err := s.e.usage(ctx, namespace, names...)
	if err != nil {
		return err
	}
	s.silent = false
	var errs []error
	for _, a := range apps {
		errs = append(errs, s.one(ctx, a, used))
	}
	return errors.Join(errs...)
}

// one takes one App's measurements in, and does what follows.
func (s *sizer) one(ctx context.Context, a *App, used map[string]podUse) error {
	pods, err := s.e.podsOf(ctx, a)
	if err != nil {
		return err
	}
	status := SizingStatus{}
	if a.Status.Sizing != nil {
		status = *a.Status.Sizing.DeepCopy()
	}
	s.take(a, pods, used)
	if a.Spec.Sizing() == runnerapi.SizingOff || !s.e.leadership.leads() {
		return nil
	}
	if a.Spec.Sizing() == runnerapi.SizingApply {
		if err := s.fit(ctx, a, pods, &status); err != nil {
			return fmt.Errorf("right-size App %s: %w", a.key(), err)
		}
	} else if err := s.release(ctx, a, pods, &status); err != nil {
		return fmt.Errorf("give App %s its own requests back: %w", a.key(), err)
	}
	return s.save(ctx, a, status)
}

// take adds the figures that are new.
func (s *sizer) take(a *App, pods []*corev1.Pod, used map[string]podUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trackedOf(a)
	days := int64(keptDays)
	if a.Spec.Sizing() == runnerapi.SizingOff {
		days = spareDays
	}
	seen := map[string]time.Time{}
	for _, pod := range pods {
		u, ok := used[pod.Name]
		if !ok {
			continue
		}
		seen[pod.Name] = u.at
		if !u.at.After(t.seen[pod.Name]) {
			continue
		}
		for name, figures := range u.containers {
			h := t.containers[name]
			h.add(u.at, figures.cpu, figures.memory)
			h.keep(days)
			t.containers[name] = h
		}
	}
	t.seen = seen
}

// trackedOf starts with the App's status. The lock is held.
func (s *sizer) trackedOf(a *App) *tracked {
	t := s.tracked[a.UID]
	if t == nil {
		t = &tracked{containers: written(a), saved: s.e.now()}
		s.tracked[a.UID] = t
	}
	return t
}

func written(a *App) map[string]history {
	out := map[string]history{}
	if a.Status.Sizing == nil {
		return out
	}
	for _, c := range a.Status.Sizing.Containers {
		if h, ok := parseHistory(c.History); ok {
			out[c.Name] = h
		}
	}
	return out
}

type namedHistory struct {
	name    string
	history history
}

// histories returns an App's, by the containers' names. They are copies of nothing but days, which
// are read under the lock.
func (s *sizer) histories(a *App) []namedHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := written(a)
	if t := s.tracked[a.UID]; t != nil {
		from = t.containers
	}
	out := make([]namedHistory, 0, len(from))
	for _, name := range slices.Sorted(maps.Keys(from)) {
		copied, ok := parseHistory(from[name].String())
		if ok {
			out = append(out, namedHistory{name, copied})
		}
	}
	return out
}

// save writes down what must not be lost, when there is news or it is time.
func (s *sizer) save(ctx context.Context, a *App, status SizingStatus) error {
	old := SizingStatus{}
	if a.Status.Sizing != nil {
		old = *a.Status.Sizing
	}
	s.mu.Lock()
	t := s.trackedOf(a)
	news := status.Waiting != old.Waiting || !same(status.Applied, old.Applied) || len(old.Containers) < len(t.containers)
	if due := s.e.now().Sub(t.saved) >= s.timing.Save; !news && !due {
		s.mu.Unlock()
		return nil
	}
	t.saved = s.e.now()
	status.Containers = nil
	for _, name := range slices.Sorted(maps.Keys(t.containers)) {
		status.Containers = append(status.Containers, ContainerHistory{Name: name, History: t.containers[name].String()})
	}
	s.mu.Unlock()
	return s.write(ctx, a, &status)
}

func same(a, b *AppliedSizing) bool { return a == b || a != nil && b != nil && *a == *b }

// write replaces the App's sizing; a part of it that is gone must not stay.
func (s *sizer) write(ctx context.Context, a *App, status *SizingStatus) error {
	var sizing any
	if status != nil {
		sizing = map[string]any{"containers": status.Containers, "applied": status.Applied, "waiting": status.Waiting}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.UID}, // not of a namesake
		"status":   map[string]any{"sizing": sizing},
	})
	if err != nil {
		return err
	}
	target := &App{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	err = s.e.cached.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(managed.FieldManager))
	if client.IgnoreNotFound(err) != nil && !isOtherUID(err) {
		return fmt.Errorf("write down what App %s uses: %w", a.key(), err)
	}
	return nil
}
