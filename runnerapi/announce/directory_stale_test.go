package announce

import (
	"math/rand/v2"
	"testing"
)

// Events come as the worst of queues could deliver them: repeated, and behind their successors.
// The known state never goes back, and ends with the last event.
func TestDirectory_IgnoresStaleEvents(t *testing.T) {
	const count, prefetch = 60, 16
	states := []State{StateOnline, StateOffline}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test
		d := newTestDirectory(t, &registry{})
		var waiting []Event
		for n := uint64(1); n <= count; n++ {
			waiting = append(waiting, stateEvent(t, AgentUpdated, "a1", n, states[n%2]))
		}
		for known := uint64(0); len(waiting) > 0; {
			ahead := min(prefetch, len(waiting))
			i := random.IntN(ahead)
			e := waiting[i]
			if random.IntN(4) > 0 { // else its reader died before it could acknowledge it
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
			handle(t, d, e)
			known = max(known, e.Sequence)
			wantState(t, d, "a1", states[known%2], known)
		}
		wantState(t, d, "a1", states[count%2], count)
	}
}
