package helm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// A command holds the lock of its release, a ConfigMap beside the release. It shows every replica
// which command runs and how far it has come. A lock that is not renewed has no holder.
const (
	renewEvery  = 3 * time.Second
	reportEvery = time.Second // if there is progress to report
	staleAfter  = 20 * time.Second
	lockKey     = "operation"
)

func lockName(release string) string { return denylist.ReleaseLock + release }

// holding is the content of a lock.
type holding struct {
	Holder  string    `json:"holder"`  // process
	Replica string    `json:"replica"` // a later process of the same replica may take over
	Renewed time.Time `json:"renewed"`
	runnerapi.ReleaseOperation
}

// live reports whether the holder may still be running. It is not if it does not renew, or if it is
// an earlier process of this replica. A time in the future is no renewal, but for a clock that is
// fast.
func (h holding) live(r *Releases, now time.Time) bool {
	return (h.Holder == r.holder || h.Replica != r.opts.Replica) && now.Sub(h.Renewed).Abs() < staleAfter
}

// lock is a lock that this process holds.
type lock struct {
	maps corev1client.ConfigMapInterface
	mu   sync.Mutex
	at   *corev1.ConfigMap
	told string // progress that others can see
	holding
}

// readLock returns the lock's holder on a release; nil if there is none.
func (r *Releases) readLock(ctx context.Context, c *clients, key runnerapi.Key) (*holding, *corev1.ConfigMap, error) {
	at, err := c.core.ConfigMaps(key.Namespace).Get(ctx, lockName(key.Name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, kubeproblem.From(err, "checking which command holds release "+key.Name)
	}
	h := &holding{}
	if err := json.Unmarshal([]byte(at.Data[lockKey]), h); err != nil {
		return nil, at, nil //nolint:nilerr // another client has written into it, so it has no holder
	}
	if !h.live(r, time.Now()) {
		return nil, at, nil
	}
	return h, at, nil
}

// take takes a release's lock, or returns an error that names the holder.
func (r *Releases) take(ctx context.Context, c *clients, key runnerapi.Key, command string, caller runnerapi.Caller) (*lock, error) {
	h, at, err := r.readLock(ctx, c, key)
	if err != nil {
		return nil, err
	}
	if h != nil {
		return nil, atWork(key, h)
	}
	now := time.Now().UTC()
	l := &lock{maps: c.core.ConfigMaps(key.Namespace), at: at, holding: holding{
		Holder: r.holder, Replica: r.opts.Replica, Renewed: now,
		ReleaseOperation: runnerapi.ReleaseOperation{Command: command, Runner: caller.Runner, StartedAt: now},
	}}
	if at == nil {
		l.at = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: lockName(key.Name), Labels: map[string]string{releaseLabel: key.Name}}}
		err = l.write(func(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
			return l.maps.Create(ctx, m, metav1.CreateOptions{FieldManager: objectmeta.FieldManager})
		})
	} else {
		err = l.renew(ctx)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) { // another was faster
		if h, _, err := r.readLock(ctx, c, key); err == nil && h != nil {
			return nil, atWork(key, h)
		}
		return nil, problem.Errorf(problem.Busy, "send it again", "another command began to work on release %s at the same time", key.Name)
	}
	if err != nil {
		return nil, kubeproblem.From(err, "locking release "+key.Name)
	}
	return l, nil
}

func atWork(key runnerapi.Key, h *holding) error {
	return problem.Errorf(problem.Busy, "wait for its end: pipeops-runner helm status AGENT "+key.Name+" -n "+key.Namespace+" --wait",
		"%s of Runner %s is at work on release %s since %s (%s)", h.Command, h.Runner, key.Name, h.StartedAt.Format(time.RFC3339), cmp.Or(h.Progress, "it has just begun"))
}

// say records the command's progress, which others see with the next renewal.
func (l *lock) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Progress = fmt.Sprintf(format, args...)
}

func (l *lock) operation() *runnerapi.ReleaseOperation {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := l.ReleaseOperation
	return &op
}

// renew fails with a conflict if another process has taken the lock.
func (l *lock) renew(ctx context.Context) error {
	return l.write(func(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		return l.maps.Update(ctx, m, metav1.UpdateOptions{FieldManager: objectmeta.FieldManager})
	})
}

func (l *lock) write(send func(*corev1.ConfigMap) (*corev1.ConfigMap, error)) error {
	l.mu.Lock()
	now := l.holding
	now.Renewed = time.Now().UTC()
	next := l.at.DeepCopy()
	l.mu.Unlock()
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	next.Data = map[string]string{lockKey: string(text)}
	written, err := send(next)
	if err == nil {
		l.mu.Lock()
		l.at, l.Renewed, l.told = written, now.Renewed, now.Progress
		l.mu.Unlock()
	}
	return err
}

// due reports whether to write the lock: it has aged, or there is progress.
func (l *lock) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Progress != l.told || time.Since(l.Renewed) >= renewEvery
}

// stands returns nil if the lock is ours: no process takes a lock this young.
func (l *lock) stands() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := time.Since(l.Renewed); age >= staleAfter {
		return fmt.Errorf("the lock of the release was not renewed for %s: another command may be at work", age.Round(time.Second))
	}
	return nil
}

// hold renews the lock until ctx ends, and calls lost if the lock is no longer ours.
func (l *lock) hold(ctx context.Context, lost func(error)) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !l.due() {
			continue
		}
		// A renewal runs to its end. If its answer were not awaited, the current version of our
		// lock would be unknown, and the lock could not be released.
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewEvery)
		err := l.renew(once)
		cancel()
		l.mu.Lock()
		age := time.Since(l.Renewed)
		l.mu.Unlock()
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || err != nil && age > staleAfter/2 {
			lost(fmt.Errorf("the lock of the release was lost: %w", err))
			return
		}
	}
}

// release releases the lock. Its ConfigMap stays, for the next command.
func (l *lock) release(ctx context.Context) error {
	l.mu.Lock()
	next := l.at.DeepCopy()
	l.mu.Unlock()
	next.Data = nil
	_, err := l.maps.Update(ctx, next, metav1.UpdateOptions{FieldManager: objectmeta.FieldManager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// remove is like release for a release that no longer exists.
func (l *lock) remove(ctx context.Context) error {
	l.mu.Lock()
	at := l.at
	l.mu.Unlock()
	err := l.maps.Delete(ctx, at.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &at.UID, ResourceVersion: &at.ResourceVersion}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
