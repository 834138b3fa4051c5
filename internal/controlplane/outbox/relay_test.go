package outbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

var databases postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop).Run()) }

// flaky confirms as many events as it is told to in each call, all when it has
// been told nothing.
type flaky struct {
	mu       sync.Mutex
	confirms []int
	got      []uint64
}

func (f *flaky) Publish(_ context.Context, events []announce.Encoded) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := len(events), error(nil)
	if len(f.confirms) > 0 {
		n, f.confirms = min(n, f.confirms[0]), f.confirms[1:]
		err = errors.New("connection lost")
	}
	for _, encoded := range events[:n] {
		e, err := announce.Decode(encoded.Body)
		if err != nil {
			return 0, err
		}
		f.got = append(f.got, e.Sequence)
	}
	return n, err
}

func (f *flaky) received() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]uint64(nil), f.got...)
}

// changing is a store with an agent, and what puts so many announcements of it into the outbox at
// once.
func changing(t *testing.T) (s *store.Store, change func(n int)) {
	t.Helper()
	s = storetest.Open(t, &databases, postgres.Chosen(t))
	a := store.Agent{ID: "a1", Name: "shop", ClusterUID: "u", State: announce.StatePending, EdgeAddress: "e:1"}
	require.NoError(t, s.InsertAgent(t.Context(), a))
	return s, func(n int) {
		t.Helper()
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			for range n {
				if err := (discovery.Directory{AgentsDomain: "d"}).Write(t.Context(), tx, announce.AgentUpdated, a, time.UnixMilli(1)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func TestOutbox_PublishesInOrder(t *testing.T) {
	s, change := changing(t)
	change(5)
	f := &flaky{confirms: []int{0, 2, 0, 1}}
	await.Background(t, "the relay", (&relay{store: s, publisher: f, log: zerolog.Nop(), pause: time.Millisecond, now: time.Now}).run)
	await.Until(t, "all are out in spite of the failures", func() bool { return len(f.received()) == 5 })
	change(1)
	await.Until(t, "a commit wakes it", func() bool { return len(f.received()) == 6 })
	assert.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, f.received())
	await.Until(t, "what is confirmed leaves the outbox", func() bool {
		n, err := s.OutboxLength(t.Context())
		return err == nil && n == 0
	})
}

func TestOutbox_DropsSuperseded(t *testing.T) {
	s, change := changing(t)
	var log bytes.Buffer
	o := New(s, store.OutboxLimits{PerAgent: 20, Events: DefaultEvents, Bytes: DefaultBytes}, zerolog.New(&log))
	change(30)
	require.NoError(t, o.Shorten(t.Context()))
	left, err := s.Outbox(t.Context(), 100)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(left), 20)
	assert.EqualValues(t, 30, left[len(left)-1].Event.Sequence, "a Runner sees by its sequence that some were dropped")
	assert.Contains(t, log.String(), "dropped superseded")
	stats, err := o.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 30-len(left), stats.Dropped)
	assert.Equal(t, len(left), stats.Length)

	o.limits = store.OutboxLimits{PerAgent: 1, Events: 0, Bytes: 1}
	for range 3 {
		require.NoError(t, o.Shorten(t.Context()))
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("only the latest event")), "it is logged once that no more can be dropped")
}
