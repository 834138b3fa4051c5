package sizing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Timing is how right-sizing measures. What is zero has its default.
type Timing struct {
	Every      time.Duration // between two measurements; a minute
	Save       time.Duration // between two times that they are written down; a quarter of an hour
	Settle     time.Duration // between two changes of one App's requests; an hour
	MinSamples int64         // measurements before anything is applied; 60
}

func (s Timing) withDefaults() Timing {
	s.Every = cmp.Or(s.Every, time.Minute)
	s.Save = cmp.Or(s.Save, 15*time.Minute)
	s.Settle = cmp.Or(s.Settle, time.Hour)
	s.MinSamples = cmp.Or(s.MinSamples, 60)
	return s
}

// Sizer measures all Apps, so that each has a recommendation to ask for: one
// request to metrics-server for a hundred of them. Of those that turned
// right-sizing on a week is kept in the App's status, written seldom: a restart
// of the agent loses a quarter of an hour of it. Of the others two days are kept,
// in memory alone. Every replica measures; the leader applies and writes.
type Sizer struct {
	store  *appcache.Store
	leads  func() bool
	log    zerolog.Logger
	now    func() time.Time
	timing Timing
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

// New returns a Sizer that applies only while this replica leads.
func New(store *appcache.Store, timing Timing, leads func() bool, log zerolog.Logger, now func() time.Time) *Sizer {
	return &Sizer{store: store, leads: leads, log: log, now: now, timing: timing.withDefaults(), tracked: map[types.UID]*tracked{}}
}

// Start implements manager.Runnable. It measures until ctx ends.
func (s *Sizer) Start(ctx context.Context) error {
	ticker := time.NewTicker(s.timing.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !s.leads() {
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
func (s *Sizer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tracked)
}

// complain logs once that there is no metrics-server: repeated requests do not change that.
func (s *Sizer) complain(err error) {
	if !noMetricsServer(err) {
		s.silent = false
		s.log.Warn().Err(err).Msg("right-sizing: some Apps could not be measured")
		return
	}
	if !s.silent {
		s.log.Info().Err(err).Msg("right-sizing is off: no metrics for Apps")
	}
	s.silent = true
}

func noMetricsServer(err error) bool {
	return problem.Is(err, runnerapi.CodeNotSupported)
}

// round measures every App once.
func (s *Sizer) round(ctx context.Context) error {
	var list v1alpha1.List
	if err := s.store.Cached.List(ctx, &list); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	byNamespace, alive := map[string][]*v1alpha1.App{}, map[types.UID]bool{}
	var errs []error
	for i := range list.Items {
		a := &list.Items[i]
		ok, err := s.store.Manages(ctx, a.Namespace)
		if err != nil || !ok || !a.DeletionTimestamp.IsZero() {
			errs = append(errs, err)
			continue
		}
		byNamespace[a.Namespace] = append(byNamespace[a.Namespace], a)
		alive[a.UID] = true
		if a.Spec.Sizing() == runnerapi.SizingOff && a.Status.Sizing != nil && s.leads() {
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

func (s *Sizer) measure(ctx context.Context, namespace string, apps []*v1alpha1.App) error {
	names := make([]string, 0, len(apps))
	for _, a := range apps {
		names = append(names, a.Name)
	}
	used, err := s.usage(ctx, namespace, names...)
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
func (s *Sizer) one(ctx context.Context, a *v1alpha1.App, used map[string]podUse) error {
	pods, err := s.store.Pods(ctx, a)
	if err != nil {
		return err
	}
	status := v1alpha1.SizingStatus{}
	if a.Status.Sizing != nil {
		status = *a.Status.Sizing.DeepCopy()
	}
	s.take(a, pods, used)
	if a.Spec.Sizing() == runnerapi.SizingOff || !s.leads() {
		return nil
	}
	if a.Spec.Sizing() == runnerapi.SizingApply {
		if err := s.fit(ctx, a, pods, &status); err != nil {
			return fmt.Errorf("right-size App %s: %w", a.Key(), err)
		}
	} else if err := s.release(ctx, a, pods, &status); err != nil {
		return fmt.Errorf("give App %s its own requests back: %w", a.Key(), err)
	}
	return s.save(ctx, a, status)
}

// take adds the figures that are new.
func (s *Sizer) take(a *v1alpha1.App, pods []*corev1.Pod, used map[string]podUse) {
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
func (s *Sizer) trackedOf(a *v1alpha1.App) *tracked {
	t := s.tracked[a.UID]
	if t == nil {
		t = &tracked{containers: written(a), saved: s.now()}
		s.tracked[a.UID] = t
	}
	return t
}

func written(a *v1alpha1.App) map[string]history {
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
func (s *Sizer) histories(a *v1alpha1.App) []namedHistory {
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
func (s *Sizer) save(ctx context.Context, a *v1alpha1.App, status v1alpha1.SizingStatus) error {
	old := v1alpha1.SizingStatus{}
	if a.Status.Sizing != nil {
		old = *a.Status.Sizing
	}
	s.mu.Lock()
	t := s.trackedOf(a)
	news := status.Waiting != old.Waiting || !same(status.Applied, old.Applied) || len(old.Containers) < len(t.containers)
	if due := s.now().Sub(t.saved) >= s.timing.Save; !news && !due {
		s.mu.Unlock()
		return nil
	}
	t.saved = s.now()
	status.Containers = nil
	for _, name := range slices.Sorted(maps.Keys(t.containers)) {
		status.Containers = append(status.Containers, v1alpha1.ContainerHistory{Name: name, History: t.containers[name].String()})
	}
	s.mu.Unlock()
	return s.write(ctx, a, &status)
}

func same(a, b *v1alpha1.AppliedSizing) bool { return a == b || a != nil && b != nil && *a == *b }

// write replaces the App's sizing; a part of it that is gone must not stay.
func (s *Sizer) write(ctx context.Context, a *v1alpha1.App, status *v1alpha1.SizingStatus) error {
	var sizing any
	if status != nil {
		sizing = map[string]any{"containers": status.Containers, "applied": status.Applied, "waiting": status.Waiting}
	}
	if err := s.store.PatchStatus(ctx, a.Key(), a.UID, map[string]any{"sizing": sizing}); err != nil {
		return fmt.Errorf("write down what App %s uses: %w", a.Key(), err)
	}
	return nil
}
