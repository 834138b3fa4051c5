package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var (
	web  = traffic.App{Namespace: "production", Name: "web"}
	shop = traffic.Owner{App: web, Host: "shop.example.com"}
)

func report(c *traffic.Counters, span traffic.Span) runnerapi.Traffic {
	return traffic.Report(c.Values(), web, span, c.Now())
}

// TestReport_OverTime counts requests in three steps, and looks at them while time passes.
func TestReport_OverTime(t *testing.T) {
	at := newClock()
	c := traffic.New(at.now)
	h := c.Host(shop)
	assert.Same(t, h, c.Host(shop), "one host has one place")
	h.Request(at.now(), 200, "", 4*time.Millisecond, 10, 100)
	at.advance(time.Minute)
	h.Request(at.now(), 504, gatewaywire.TimedOut, time.Minute, 0, 0)
	h.Request(at.now(), 403, gatewaywire.Denied, traffic.NoLatency, 0, 0)
	at.advance(2 * time.Minute)
	h.Request(at.now(), 101, "", 2*time.Millisecond, 0, 0)
	h.Bytes(at.now(), 7, 9)
	h.Request(at.now(), 302, "new-word", time.Hour, -1, -1)

	got := report(c, traffic.Hour)
	require.Len(t, got.Points, 61)
	assert.Equal(t, time.Date(2026, 3, 1, 11, 3, 0, 0, time.UTC), got.Start)
	assert.Equal(t, "1m0s", got.Step)
	last := got.Points[len(got.Points)-4:]
	assert.Equal(t, []int64{1, 2, 0, 2}, []int64{last[0].Requests, last[1].Requests, last[2].Requests, last[3].Requests})
	assert.Equal(t, []int64{0, 1, 0, 0}, []int64{last[0].Errors, last[1].Errors, last[2].Errors, last[3].Errors})
	assert.Nil(t, last[2].P95)
	require.Len(t, got.Hosts, 1)
	host := got.Hosts[0]
	assert.Equal(t, runnerapi.StatusCounts{Informational: 1, Successful: 1, Redirection: 1, ClientError: 1, ServerError: 1}, host.Statuses)
	assert.Equal(t, map[string]int64{"timed-out": 1, "denied": 1, "other": 1}, host.Failed)
	assert.Equal(t, []int64{5, 1, 17, 109}, []int64{host.Requests, host.Errors, host.Received, host.Sent})

	day := report(c, traffic.Day)
	assert.Len(t, day.Points, 25)
	assert.Equal(t, int64(5), day.Points[24].Requests)
	at.advance(58 * time.Minute)
	assert.Equal(t, int64(4), report(c, traffic.Hour).Hosts[0].Requests, "the first minute is too long ago")
	h.Request(at.now(), 200, "", 0, 0, 0)
	assert.Equal(t, int64(5), report(c, traffic.Hour).Hosts[0].Requests, "a step that is used again begins at zero")
	at.advance(23 * time.Hour)
	assert.Empty(t, report(c, traffic.Hour).Hosts[0].Requests)
	assert.Equal(t, int64(6), report(c, traffic.Day).Hosts[0].Requests)
	at.advance(2 * time.Hour)
	assert.Empty(t, report(c, traffic.Day).Hosts, "a host without a request in the day is left out")
}

func TestFigures_Quantile(t *testing.T) {
	for name, c := range map[string]struct {
		latencies     []time.Duration
		p50, p95, p99 float64
	}{
		"one":         {[]time.Duration{4 * time.Millisecond}, 4, 4.9, 5},
		"of one kind": {slices.Repeat([]time.Duration{150 * time.Millisecond}, 100), 125, 147.5, 149.5},
		"two kinds":   {append(slices.Repeat([]time.Duration{time.Millisecond}, 90), slices.Repeat([]time.Duration{2 * time.Second}, 10)...), 0.6, 1750, 1950},
		"too late":    {[]time.Duration{time.Hour}, 60_000, 60_000, 60_000},
		"zero":        {[]time.Duration{0}, 0.5, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			at := newClock()
			counters := traffic.New(at.now)
			for _, l := range c.latencies {
				counters.Host(shop).Request(at.now(), 200, "", l, 0, 0)
			}
			assert.Equal(t, &runnerapi.Latency{P50: c.p50, P95: c.p95, P99: c.p99}, report(counters, traffic.Hour).Hosts[0].Latency)
		})
	}
}

// TestCounters_SharePlaces: a namespace with many hosts takes no place of others.
func TestCounters_SharePlaces(t *testing.T) {
	at := newClock()
	c := traffic.New(at.now)
	many := func(namespace string, n int) (placed int) {
		for i := range n {
			if c.Host(traffic.Owner{App: traffic.App{Namespace: namespace, Name: "a"}, Host: fmt.Sprintf("h%05d.example.com", i)}) != nil {
				placed++
			}
		}
		return placed
	}
	assert.Equal(t, traffic.MaxHosts, many("greedy", 10_000))
	assert.Equal(t, 3, many("small", 3), "another namespace gets its places")
	assert.InDelta(t, traffic.MaxHosts/2, many("late", 10_000), 5, "and up to its share")
	assert.Equal(t, 3, many("small", 3))
	assert.Nil(t, c.Host(traffic.Owner{App: traffic.App{Namespace: "greedy", Name: "a"}, Host: "new"}))
	assert.False(t, c.Counted(traffic.Owner{App: traffic.App{Namespace: "greedy", Name: "a"}, Host: "new"}))
	at.advance(2 * time.Hour)
	assert.NotNil(t, c.Host(traffic.Owner{App: traffic.App{Namespace: "greedy", Name: "a"}, Host: "new"}), "the place of a host without visitors")
	var none *traffic.Host
	none.Request(at.now(), 200, "", 0, 0, 0)
	none.Bytes(at.now(), 1, 1)
}

// store keeps shares in memory. It stands for that in the cluster.
type store struct {
	mu     sync.Mutex
	shares []traffic.Share
	err    error
}

func (s *store) Put(_ context.Context, share traffic.Share) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares = append(s.shares, share)
	return s.err
}

func (s *store) List(context.Context) ([]traffic.Share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shares), s.err
}

func (s *store) Delete(_ context.Context, process string, number int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares = slices.DeleteFunc(s.shares, func(o traffic.Share) bool { return o.Process == process && o.Number == number })
	return s.err
}

// TestSharing_SumOfReplicas: each of two replicas reports the requests of both, also of one that
// has ended.
func TestSharing_SumOfReplicas(t *testing.T) {
	at, in := newClock(), &store{}
	one, two := traffic.NewSharing(traffic.New(at.now), in, zerolog.Nop()), traffic.NewSharing(traffic.New(at.now), in, zerolog.Nop())
	sum := func(s *traffic.Sharing) int64 {
		all, err := s.All(t.Context())
		require.NoError(t, err)
		return traffic.Report(all, web, traffic.Hour, at.now()).Hosts[0].Requests
	}
	for range 3 {
		one.Counters.Host(shop).Request(at.now(), 200, "", time.Millisecond, 1, 2)
	}
	two.Counters.Host(shop).Request(at.now(), 500, "", time.Second, 3, 4)
	require.NoError(t, one.Share(t.Context()))
	require.NoError(t, two.Share(t.Context()))
	assert.Equal(t, int64(4), sum(one))
	assert.Equal(t, int64(4), sum(two))
	one.Counters.Host(shop).Request(at.now(), 200, "", time.Millisecond, 1, 2)
	require.NoError(t, one.Share(t.Context()))
	assert.Len(t, in.shares, 2, "an older share is deleted")
	at.advance(15 * time.Second)
	assert.Equal(t, int64(5), sum(two))

	three := traffic.NewSharing(traffic.New(at.now), in, zerolog.Nop()) // in place of the others
	assert.Equal(t, int64(5), sum(three))
	in.err = errors.New("away")
	at.advance(15 * time.Second)
	_, err := three.All(t.Context())
	require.ErrorContains(t, err, "away")
	in.err = nil
	at.advance(26 * time.Hour)
	three.Counters.Host(shop).Request(at.now(), 200, "", time.Millisecond, 1, 2)
	require.NoError(t, three.Share(t.Context()))
	assert.Len(t, in.shares, 1, "shares of a day ago are deleted")
}

// TestSharing_Run shares for the last time when its process ends.
func TestSharing_Run(t *testing.T) {
	at, in := newClock(), &store{}
	s := traffic.NewSharing(traffic.New(at.now), in, zerolog.Nop())
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, s.Run(ended))
	assert.Empty(t, in.shares, "without requests there is nothing to share")
	s.Counters.Host(shop).Request(at.now(), 200, "", time.Millisecond, 1, 2)
	require.NoError(t, s.Run(ended))
	require.NoError(t, s.Run(ended))
	assert.Len(t, in.shares, 1)
}

// TestSharing_Bounded: as many hosts as there may be, all busy all day.
func TestSharing_Bounded(t *testing.T) {
	at, in := newClock(), &store{}
	s := traffic.NewSharing(traffic.New(at.now), in, zerolog.Nop())
	hosts := make([]*traffic.Host, traffic.MaxHosts)
	for i := range hosts {
		hosts[i] = s.Counters.Host(traffic.Owner{App: web, Host: strings.Repeat("x", 200) + fmt.Sprint(i)})
	}
	for step := range 25 * 60 {
		for _, h := range hosts {
			h.Request(at.now(), 200+step%300, "", time.Duration(rand.IntN(1<<20))*time.Microsecond, rand.Int64N(1<<40), rand.Int64N(1<<40))
		}
		at.advance(time.Minute)
	}
	require.NoError(t, s.Share(t.Context()))
	assert.LessOrEqual(t, len(in.shares[0].Data), traffic.MaxShare)
	read := traffic.Read(in.shares, at.now(), zerolog.Nop())
	assert.NotEmpty(t, read)
	assert.Less(t, len(read), traffic.MaxHosts)
}

// BenchmarkHost_Request is what counting adds to a request, which takes some 100 µs.
func BenchmarkHost_Request(b *testing.B) {
	h := traffic.New(nil).Host(shop)
	b.ReportAllocs()
	for b.Loop() {
		h.Request(time.Now(), 200, "", 20*time.Millisecond, 10, 100)
	}
}
