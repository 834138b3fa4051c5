package direct

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
)

func TestTarget_Backoff(t *testing.T) {
	p := New(Config{Log: zerolog.Nop()})
	a := Host{Name: "a.example", AgentID: "x", Endpoint: "192.0.2.1"}
	p.Set([]Host{a, {Name: "b.example", AgentID: "x", Endpoint: "192.0.2.1"}})
	h, now := p.hosts[a.Name], time.Now()
	direct := func() bool { return p.Way(a.Name, "x") != nil }
	successes := func() (n int) {
		for !direct() {
			h.target.judge(h, nil, now)
			n++
		}
		return n
	}
	silent := unsentError{unreachableError{errors.New("i/o timeout")}}
	assert.True(t, h.target.judge(h, silent, now), "it was tried")
	assert.False(t, direct(), "nothing is proven yet")
	assert.Equal(t, 1, successes())
	assert.Nil(t, p.Way("b.example", "x"), "the other host is not proven")
	assert.Nil(t, p.Way(a.Name, "y"), "it is not that agent's")
	for _, want := range []int{2, 4, 8, 16, 32, 32} {
		assert.True(t, h.target.judge(h, silent, now))
		assert.False(t, direct())
		s, _ := h.state()
		assert.Equal(t, "i/o timeout", s.Reason)
		assert.Equal(t, want, successes())
	}
	h.target.mu.Lock()
	h.target.rose = time.Now().Add(-2 * stable)
	h.target.mu.Unlock()
	h.target.judge(h, silent, now)
	assert.Equal(t, 2, successes(), "it was stable")

	assert.True(t, h.target.judge(h, errKey, now))
	assert.False(t, direct())
	assert.NotNil(t, h.target.link.Load(), "another host's key is of no concern to it")
	p.Set(nil)
	assert.Empty(t, p.targets)
}

func TestTarget_CheckInterval(t *testing.T) {
	p := New(Config{Log: zerolog.Nop()})
	a := Host{Name: "a.example", AgentID: "x", Endpoint: "192.0.2.1"}
	p.Set([]Host{a})
	h, now := p.hosts[a.Name], time.Now()
	pause := func() time.Duration {
		_, d := h.target.due(now)
		return d.Round(time.Second)
	}
	first, _ := h.target.due(now)
	assert.Equal(t, h, first, "a new host is proven at once")
	h.target.judge(h, nil, now)
	h.target.judge(h, nil, now)
	assert.Greater(t, pause(), 20*time.Second, "nothing uses it")
	h.target.touch()
	again, _ := h.target.due(now)
	assert.Equal(t, h, again, "it is tried with the first request")
	h.target.judge(h, nil, now)
	assert.Equal(t, time.Second, pause())
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, downPause, downPause} {
		h.target.judge(h, unreachableError{errors.New("refused")}, now)
		assert.Equal(t, want, pause())
	}
}
