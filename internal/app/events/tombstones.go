package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// tombstonesName is the ConfigMap, in the agent's namespace, of Apps whose end is still to be
// announced.
const tombstonesName = "pipeops-removed-apps"

// maxTombstones and maxTombstoneBytes bound that ConfigMap, which holds at most 1 MiB. An event has
// some 300 bytes, unless its App has an image with a long name.
const maxTombstones, maxTombstoneBytes = 1000, 768 << 10

// tombstones keeps the last event of each App that is gone, until it was announced.
// There is no App left whose status could hold it.
type tombstones struct {
	client    client.Client
	namespace string

	mu    sync.Mutex
	known map[types.UID]Event // nil until read
}

// Ended takes note of an App that is gone. Only the leader does: the next leader compares the Apps
// that are there with those that the control plane knows.
func (n *Sender) Ended(a *v1alpha1.App) {
	if n.send == nil || !n.election.Leads() {
		return
	}
	n.mu.Lock()
	n.ended = append(n.ended, removed(a, time.Now()))
	n.mu.Unlock()
	n.Look()
}

// ends records the ends that were noted, and returns all that wait, oldest first.
func (n *Sender) ends(ctx context.Context) ([]Event, error) {
	if err := n.bury(ctx); err != nil {
		return nil, err
	}
	return n.dead(ctx)
}

// bury makes the ends that were noted outlive this process.
func (n *Sender) bury(ctx context.Context) error {
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	if len(ended) == 0 {
		return nil
	}
	err := n.change(ctx, func(data map[types.UID]Event) (changed bool) {
		for _, ev := range ended {
			if _, there := data[ev.uid]; !there {
				data[ev.uid], changed = ev, true
			}
		}
		if lost := forget(data); lost > 0 {
			n.log.Error().Int("lost", lost).Msg("too many deleted Apps wait to be announced; dropping the oldest")
		}
		return changed
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.ended = n.ended[len(ended):]
	n.mu.Unlock()
	return nil
}

// LookForEnds makes the sender of events read the tombstones again. A former leader that was held
// up when it lost the lease may have added one after this leader had read them.
func (n *Sender) LookForEnds() {
	if n.send == nil {
		return
	}
	n.Reread()
	n.Look()
}

// forget drops events beyond the bounds: the oldest of the namespace that has the most, so that it
// pushes out none of another.
func forget(data map[types.UID]Event) (lost int) {
	waiting, all := inOrder(data), 0
	taken := map[string]int{} // bytes, by namespace
	for _, ev := range waiting {
		taken[ev.Namespace] += ev.size()
		all += ev.size()
	}
	for ; len(data) > maxTombstones || all > maxTombstoneBytes; lost++ {
		most := waiting[0].Namespace
		for namespace, bytes := range taken {
			if bytes > taken[most] {
				most = namespace
			}
		}
		at := slices.IndexFunc(waiting, func(ev Event) bool { return ev.Namespace == most })
		ev := waiting[at]
		waiting = slices.Delete(waiting, at, at+1)
		delete(data, ev.uid)
		taken[most] -= ev.size()
		all -= ev.size()
	}
	return lost
}

// size returns about how many bytes an event takes.
func (e Event) size() int {
	raw, err := json.Marshal(e)
	if err != nil {
		return 0
	}
	return len(e.uid) + len(raw)
}

// dead returns the waiting events, oldest first.
func (g *tombstones) dead(ctx context.Context) ([]Event, error) {
	g.mu.Lock()
	known := g.known
	g.mu.Unlock()
	if known == nil {
		if err := g.change(ctx, func(map[types.UID]Event) bool { return false }); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return inOrder(g.known), nil
}

// Reread discards the cached tombstones, because another replica may have changed them.
func (g *tombstones) Reread() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = nil
}

// clear removes what was announced.
func (g *tombstones) clear(ctx context.Context, announced []types.UID) error {
	if len(announced) == 0 {
		return nil
	}
	return g.change(ctx, func(data map[types.UID]Event) bool {
		before := len(data)
		for _, uid := range announced {
			delete(data, uid)
		}
		return len(data) < before
	})
}

// change reads the ConfigMap, lets edit change it, and writes it if edit returns true.
func (g *tombstones) change(ctx context.Context, edit func(map[types.UID]Event) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := kubeproblem.Race(ctx, func() error {
		cm := &corev1.ConfigMap{}
		err := g.client.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: tombstonesName}, cm)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		data := decodeTombstones(cm.Data)
		if edit(data) {
			if err := g.write(ctx, cm, missing, data); err != nil {
				return err
			}
		}
		g.known = data
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep ended Apps in ConfigMap %s/%s: %w", g.namespace, tombstonesName, err)
	}
	return nil
}

func (g *tombstones) write(ctx context.Context, cm *corev1.ConfigMap, missing bool, data map[types.UID]Event) error {
	cm.Data = map[string]string{}
	for uid, ev := range data {
		raw, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		cm.Data[string(uid)] = string(raw)
	}
	if missing {
		cm.ObjectMeta = metav1.ObjectMeta{Namespace: g.namespace, Name: tombstonesName, Labels: objectmeta.Labels()}
		return g.client.Create(ctx, cm, client.FieldOwner(objectmeta.FieldManager))
	}
	return g.client.Update(ctx, cm, client.FieldOwner(objectmeta.FieldManager))
}

// decodeTombstones skips entries that are not events: any client may have edited the ConfigMap.
func decodeTombstones(data map[string]string) map[types.UID]Event {
	out := map[types.UID]Event{}
	for uid, raw := range data {
		var ev Event
		if len(out) < maxTombstones && json.Unmarshal([]byte(raw), &ev) == nil && ev.ID != "" && ev.Type == Removed {
			ev.uid = types.UID(uid)
			out[ev.uid] = ev
		}
	}
	return out
}

func inOrder(data map[types.UID]Event) []Event {
	all := make([]Event, 0, len(data))
	for _, ev := range data {
		all = append(all, ev)
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.uid, b.uid)) })
	return all
}
