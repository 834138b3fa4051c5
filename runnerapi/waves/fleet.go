// Package waves does the same thing at many agents, in waves: a failure in one wave keeps it from
// the next. The caller connects to an agent and says what is to be done there.
package waves

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// maxAtOnce bounds the agents of a wave that are called at the same time.
const maxAtOnce = 32

// Outcome is what became of one agent.
type Outcome struct {
	Agent announce.Agent
	// Err is the error of what was done there.
	Err error
	// Skipped is set if an earlier wave failed, or ctx ended: nothing was done there.
	Skipped bool
}

// Select returns the agents whose labels match a Kubernetes label selector, by name. It leaves out
// agents that were revoked.
func Select(agents []announce.Agent, selector string) ([]announce.Agent, error) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var found []announce.Agent
	for _, a := range agents {
		if a.State != announce.StateRevoked && wanted.Matches(labels.Set(a.Labels)) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b announce.Agent) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// Size returns how many of n agents a wave has: a number such as 5, or a share such as 10%, which
// is rounded up.
func Size(wave string, n int) (int, error) {
	text, share := strings.CutSuffix(wave, "%")
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 || share && size > 100 {
		return 0, fmt.Errorf("%q is not a number of agents, such as 5 or 10%%", wave)
	}
	if share {
		size = int(math.Ceil(float64(n) * float64(size) / 100))
	}
	return max(size, 1), nil
}

// Run calls do for each agent, in waves of that size. It returns an outcome for each agent, in
// their order.
func Run(ctx context.Context, agents []announce.Agent, size int, do func(context.Context, announce.Agent) error) []Outcome {
	outcomes := make([]Outcome, len(agents))
	for i, a := range agents {
		outcomes[i] = Outcome{Agent: a, Skipped: true}
	}
	for wave := range slices.Chunk(outcomes, max(size, 1)) {
		if ctx.Err() != nil || !runWave(ctx, wave, do) {
			break
		}
	}
	return outcomes
}

// runWave reports whether all went well.
func runWave(ctx context.Context, wave []Outcome, do func(context.Context, announce.Agent) error) bool {
	var work sync.WaitGroup
	room := make(chan struct{}, maxAtOnce)
	for i := range wave {
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			wave[i].Err, wave[i].Skipped = do(ctx, wave[i].Agent), false
		})
	}
	work.Wait()
	return !slices.ContainsFunc(wave, func(o Outcome) bool { return o.Err != nil })
}
