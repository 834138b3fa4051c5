package transport

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Not before the agent's clock says so, which may be behind the timer's.
func TestConnections_CloseAtExpiry(t *testing.T) {
	for name, early := range map[string]int{"the clocks agree": 0, "the agent's clock is behind": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				tracker := &connTracker{open: map[*trackedConn]struct{}{}}
				d := &trackedConn{Conn: near, tracker: tracker}
				tracker.open[d] = struct{}{}
				until, looks, refused := time.Now().Add(time.Hour), 0, []Refusal(nil)
				d.admit(&runner{
					until: until, now: time.Now,
					still: func() *Refusal {
						if looks++; looks <= early {
							return nil
						}
						return &Refusal{Code: RefusedExpired}
					},
					refused: func(r Refusal) { refused = append(refused, r) },
				})
				_, err := far.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
				assert.Equal(t, until.Add(time.Millisecond+time.Duration(early)*soonest), time.Now())
				assert.Equal(t, []Refusal{{Code: RefusedExpired, Open: true}}, refused)
				assert.Empty(t, tracker.open)
			})
		})
	}
}
