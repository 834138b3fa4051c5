package mux

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// given is a courtesy whose clock goes on only by giving way.
type given struct {
	courtesy
	at    time.Time
	takes time.Duration // to give way
	ways  int           // that were given
}

func newGiven(takes time.Duration) *given {
	g := &given{at: time.Unix(1_700_000_000, 0), takes: takes}
	g.now = func() time.Time { return g.at }
	g.yield = func() { g.ways++; g.at = g.at.Add(g.takes) }
	return g
}

// untilPaused gives way until that is left be, and returns how often it was done and for how long it is.
func (g *given) untilPaused(t *testing.T) (ways int, pause time.Duration) {
	t.Helper()
	for ways = g.ways; g.ways-ways < 100; {
		before := g.ways
		if g.giveWay(); g.ways == before {
			return g.ways - ways, g.until.Sub(g.at)
		}
	}
	require.Fail(t, "it is never paused")
	return 0, 0
}

func TestWayIsGivenWhileItIsCheap(t *testing.T) {
	g := newGiven(dear)
	for range 10_000 {
		g.giveWay()
	}
	assert.Equal(t, 10_000, g.ways)
}

func TestOneLongWaitIsNoReasonToStop(t *testing.T) {
	g := newGiven(10 * time.Microsecond)
	g.giveWay()
	g.takes = time.Second
	g.giveWay()
	g.takes = 10 * time.Microsecond
	g.giveWay()
	assert.Equal(t, 3, g.ways)
}

// TestWhereItIsDearItIsTriedLessAndLess has each pause twice as long as the one before, and few tries after each.
func TestWhereItIsDearItIsTriedLessAndLess(t *testing.T) {
	g := newGiven(3 * time.Millisecond)
	ways, pause := g.untilPaused(t)
	assert.Less(t, ways, 10)
	for want := leastPause; ; want *= 2 {
		assert.Equal(t, min(want, mostPause), pause)
		if want > mostPause {
			break
		}
		g.at = g.until
		ways, pause = g.untilPaused(t)
		assert.Less(t, ways, 5)
	}

	g.at, g.takes = g.until, 10*time.Microsecond // whoever computed is done
	for g.at.Before(g.until.Add(2 * mostPause)) {
		before := g.ways
		g.giveWay()
		require.Equal(t, before+1, g.ways)
		g.at = g.at.Add(time.Millisecond)
	}
	g.takes = 3 * time.Millisecond
	_, pause = g.untilPaused(t)
	assert.Equal(t, leastPause, pause, "what was long ago says nothing")
}

// TestOfManyAtOnceOneBeginsThePause has those who were giving way when it began not lengthen it.
func TestOfManyAtOnceOneBeginsThePause(t *testing.T) {
	g := newGiven(3 * time.Millisecond)
	begin := g.at
	_, pause := g.untilPaused(t)
	end := g.until
	for range 100 {
		g.took(begin, end.Add(-time.Millisecond))
	}
	assert.Equal(t, pause, g.pause)
	assert.Equal(t, end, g.until)
}

// TestWhoIsAheadIsGivenTimeFor counts how often way is given to those who answer what a reader brings.
func TestWhoIsAheadIsGivenTimeFor(t *testing.T) {
	const long = 2 * smallFrame
	for name, c := range map[string]struct {
		size     int  // of what is read at a time
		answered bool // before more is read
		want     int  // of four reads
	}{
		"a request, then its answer": {size: 100, answered: true, want: 0},
		"one request after another":  {size: 100, want: 3}, // the first may be the only one
		"an upload":                  {size: long, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t, line)
			g := newGiven(0)
			near.session.courtesy = &g.courtesy
			r, w := io.Pipe()
			copied := make(chan error, 1)
			go func() { _, err := near.ReadFrom(r); copied <- err }()
			piece, answer := make([]byte, c.size), make([]byte, 1)
			for range 4 {
				_, err := w.Write(piece)
				require.NoError(t, err)
				_, err = io.ReadFull(far, piece)
				require.NoError(t, err)
				if c.answered {
					_, err = far.Write(answer)
					require.NoError(t, err)
					_, err = io.ReadFull(near, answer)
					require.NoError(t, err)
				}
			}
			require.NoError(t, w.Close())
			require.NoError(t, <-copied)
			assert.Equal(t, c.want, g.ways)
		})
	}
}

// TestBulkGivesWayToOthers has a stream write four pieces, beside what writes small frames.
func TestBulkGivesWayToOthers(t *testing.T) {
	const gathered = 4<<10 + 22 // answers of HTTP/2, and TLS around them
	small := make([]byte, 100)
	for name, c := range map[string]struct {
		piece         int
		itself, other bool // which writes a small frame before each piece
		want          int
	}{
		"alone":                           {piece: 2 * bulkFrame, want: 0},
		"with small frames itself":        {piece: 2 * bulkFrame, itself: true, want: 0},
		"beside another's":                {piece: 2 * bulkFrame, other: true, want: 4},
		"beside another's and itself":     {piece: 2 * bulkFrame, itself: true, other: true, want: 4},
		"answers are small, also of many": {piece: gathered, other: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := pair(t, line)
			g := newGiven(0)
			near.session.courtesy = &g.courtesy
			other, err := near.session.OpenStream()
			require.NoError(t, err)
			write := func(to *Stream, p []byte) {
				_, err := to.Write(p)
				require.NoError(t, err)
			}
			for range 4 {
				if c.itself {
					write(near, small)
				}
				if c.other {
					write(other, small)
				}
				write(near, make([]byte, c.piece))
			}
			write(near, make([]byte, c.piece)) // nobody has since
			assert.Equal(t, c.want, g.ways)
		})
	}
}
