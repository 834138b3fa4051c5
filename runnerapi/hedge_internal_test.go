package runnerapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestHedgesAreBounded to one in ten calls, and ten at once.
func TestHedgesAreBounded(t *testing.T) {
	var b hedgeBudget
	b.add(maxHedges * hedgeCost)
	taken := func() (n int) {
		for b.take() {
			n++
		}
		return n
	}
	assert.Equal(t, maxHedges, taken())
	for range 95 {
		b.earn()
	}
	assert.Equal(t, 9, taken())
	b.giveBack()
	assert.Equal(t, 1, taken(), "one that helped")
	for range 1000 {
		b.earn()
	}
	assert.Equal(t, maxHedges, taken(), "and no more are saved up")
}

// TestAConnectionIsSilent when nothing has come over it since the call began, for as long as a
// hedge waits.
func TestAConnectionIsSilent(t *testing.T) {
	const wait = time.Minute
	l := &lanes{endpoints: newEndpoints([]string{"a"})}
	l.endpoints.hedge.Store(int64(wait))
	long, lately := heardAt()-int64(2*wait), heardAt()
	for name, c := range map[string]struct {
		began, heard int64
		silent       bool
	}{
		"nothing came for long":   {long, long, true},
		"another answer came":     {long, lately, false},
		"the call has just begun": {lately, long, false},
	} {
		a, conn := &asked{}, &agentConn{}
		assert.False(t, l.silent(a), "there is no connection yet")
		a.since.Store(c.began)
		conn.heard.Store(c.heard)
		a.conn.Store(conn)
		assert.Equal(t, c.silent, l.silent(a), name)
	}
}
