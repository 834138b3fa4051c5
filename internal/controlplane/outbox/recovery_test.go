package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// account is what a Runner made of what it heard.
type account struct {
	mu        sync.Mutex
	heard     map[string]map[uint64]int
	highest   map[string]uint64
	late      int // first heard after a successor
	directory *announce.Directory
	backwards int
}

func (a *account) take(ctx context.Context, e announce.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard[e.AgentID] == nil {
		a.heard[e.AgentID] = map[uint64]int{}
	}
	if a.heard[e.AgentID][e.Sequence]++; a.heard[e.AgentID][e.Sequence] == 1 && e.Sequence < a.highest[e.AgentID] {
		a.late++
	}
	a.highest[e.AgentID] = max(a.highest[e.AgentID], e.Sequence)
	if err := a.directory.Handle(ctx, e); err != nil {
		return err
	}
	if known, err := a.directory.Get(e.AgentID); err != nil || known.Sequence != a.highest[e.AgentID] {
		a.backwards++
	}
	return nil
}

func (a *account) distinct() (n, repeats int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, seen := range a.heard {
		for _, times := range seen {
			n++
			repeats += times - 1
		}
	}
	return n, repeats
}

// TestOutbox_SurvivesBrokerCrash kills the broker three times while two thousand announcements go
// from the outbox to a Runner, which loses its connection each time. make bench sends twenty
// thousand.
func TestOutbox_SurvivesBrokerCrash(t *testing.T) {
	suite.Release(t, "brokers and receivers that die again and again")
	t.Parallel()
	const agents, each, kills = 20, 100, 3
	b := broker.OwnForTest(t)
	s := storetest.Open(t, &databases, postgres.Chosen(t))
	fleet := storetest.Fill(t, s, agents)
	link := rabbitmq.Config{URLs: []string{b.URL(broker.UserControlPlane)}, TLS: b.TLSConfig(), Log: zerolog.Nop()}
	publisher, err := publish.New(link)
	require.NoError(t, err)
	background(t, publisher.Run)
	slow(t, "the topology is there", publisher.Connected)

	directory, err := announce.NewDirectory(announce.DirectoryConfig{Snapshot: func(context.Context) ([]announce.Agent, error) { return nil, nil }})
	require.NoError(t, err)
	runner := &account{heard: map[string]map[uint64]int{}, highest: map[string]uint64{}, directory: directory}
	link.URLs = []string{b.URL(broker.UserRunner)}
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{Config: link, Queue: rabbitmq.RunnerQueue("ci")})
	require.NoError(t, err)
	background(t, func(ctx context.Context) error { return consumer.Run(ctx, runner.take) })
	slow(t, "the Runner's queue is bound", func() bool { return consumer.Status().Connected })
	// RabbitMQ 3.10 notes a new quorum queue late: docs/adr/0045-one-reader-at-a-time.md.
	_, err = b.Ctl(t.Context(), "eval", "dets:sync(ra_directory_reverse).")
	require.NoError(t, err)

	a := &relay{store: s, publisher: publisher, log: zerolog.Nop(), pause: 50 * time.Millisecond, now: time.Now}
	background(t, a.run)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	written := 0
	for kill := range kills + 1 {
		until := each * (kill + 1) / (kills + 1)
		for ; written < until; written++ {
			fillOutbox(t, s, fleet, 1)
		}
		if kill == kills {
			break
		}
		// Somewhere on the way of what was just written.
		at := agents*each*kill/(kills+1) + random.IntN(agents*each/(kills+1))
		slow(t, fmt.Sprintf("%d are heard", at), func() bool { n, _ := runner.distinct(); return n >= at })
		require.NoError(t, b.Kill())
		fillOutbox(t, s, fleet, 1) // life goes on
		written++
		require.NoError(t, b.Start(t.Context()))
	}
	slow(t, "all are heard", func() bool { n, _ := runner.distinct(); return n == agents*each })
	slow(t, "the outbox is empty", func() bool { n, err := s.OutboxLength(t.Context()); return err == nil && n == 0 })
	n, repeats := runner.distinct()
	t.Logf("%d announcements, %d heard again, %d after their successors", n, repeats, runner.late)
	for _, g := range fleet {
		known, err := directory.Get(g.ID)
		require.NoError(t, err)
		assert.EqualValues(t, each, known.Sequence)
	}
	runner.mu.Lock()
	defer runner.mu.Unlock()
	assert.Zero(t, runner.backwards, "what is stale never wins")
	assert.Zero(t, runner.late, "what was on its way to the Runner is handed out again, before its successors")
}

// background runs something until the test ends, and joins it.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	await.Background(t, "a part", func(ctx context.Context) error { return retry.UnlessDone(ctx, run(ctx)) })
}
