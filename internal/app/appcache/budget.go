package appcache

import (
	"context"
	"encoding/json"
	"math"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The budget of the Apps' specs, in bytes of JSON. In memory an App takes 2.2 times that, with its
// Deployment: TestCache_KeepsLargeAppTwice.
const (
	// maxNamespaceSpecs is for the Apps of a namespace: 4000 of 2 KiB.
	maxNamespaceSpecs = 8 << 20
	// shareOfSpecs is the part of GOMEMLIMIT that the Apps of all namespaces may have: one in so
	// many bytes.
	shareOfSpecs = 6
	// perFree is how many times as much as is free in all one namespace may have. So a team with
	// several namespaces leaves room for those of others.
	perFree = 2
)

// budget knows how large the specs of Apps are.
type budget struct {
	namespace, total int64 // bytes, for each namespace and for all

	mu    sync.Mutex
	sizes map[types.UID]specSize
}

// specSize is the size of a spec, which changes with its generation only.
type specSize struct{ generation, bytes int64 }

func newBudget() budget {
	total := debug.SetMemoryLimit(-1)
	if total < math.MaxInt64 {
		total /= shareOfSpecs
	}
	return budget{namespace: maxNamespaceSpecs, total: total}
}

// AdmitSize refuses a spec that makes the Apps of its namespace, or of all, larger than their
// budget, or that makes its namespace have more than twice as much as it leaves free. One that is
// not larger than before is never refused. Commands at the same time may exceed the budget by what
// they write.
func (s *Store) AdmitSize(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec) error {
	next := sizeOf(spec)
	list := &v1alpha1.List{}
	if err := s.Cached.List(ctx, list, Untouched); err != nil {
		return kubeproblem.From(err, "listing Apps")
	}
	var before, beside, all int64
	for i, size := range s.budget.measure(list.Items) {
		switch a := &list.Items[i]; {
		case a.Key() == key:
			before = size
			continue
		case a.Namespace == key.Namespace:
			beside += size
		}
		all += size
	}
	own, free := beside+next, s.budget.total-all-next
	switch {
	case next <= before:
		return nil
	case own > s.budget.namespace:
		return problem.Errorf(problem.TooLarge, "make the App smaller: keep files and long texts in a Secret or a ConfigMap; or delete Apps of the namespace",
			"the Apps of namespace %s would have %d KiB; %d KiB are the most", key.Namespace, own>>10, s.budget.namespace>>10)
	case free < 0:
		return problem.Errorf(problem.TooLarge, "make Apps smaller, or give the agent more memory (resources.limits.memory and goMemLimit)",
			"the Apps of all namespaces would have %d KiB; with its memory, the agent takes %d KiB", (all+next)>>10, s.budget.total>>10)
	case own/perFree > free:
		return problem.Errorf(problem.TooLarge, "make Apps of the namespace smaller or delete some, or give the agent more memory (resources.limits.memory and goMemLimit)",
			"the Apps of namespace %s would have %d KiB and leave %d KiB to others; a namespace gets at most twice as much as is free", key.Namespace, own>>10, free>>10)
	}
	return nil
}

// measure returns the sizes of the Apps' specs. It encodes those that have changed.
func (b *budget) measure(apps []v1alpha1.App) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, sizes := make(map[types.UID]specSize, len(apps)), make([]int64, len(apps))
	for i := range apps {
		a := &apps[i]
		size, ok := b.sizes[a.UID]
		if !ok || size.generation != a.Generation {
			size = specSize{a.Generation, sizeOf(a.Spec)}
		}
		known[a.UID], sizes[i] = size, size.bytes
	}
	b.sizes = known
	return sizes
}

// sizeOf returns the bytes of a spec as JSON.
func sizeOf(spec runnerapi.AppSpec) int64 {
	raw, err := json.Marshal(spec)
	if err != nil {
		return math.MaxInt32 // no spec is like that
	}
	return int64(len(raw))
}
