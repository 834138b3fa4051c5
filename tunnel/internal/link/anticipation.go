package link

import (
	"sync/atomic"
	"time"
)

const (
	// soon is how quickly a request must follow the answer to the one before for it to be worth a processor to look
	// for it: as long as the kernel of a virtual machine polls before it halts, and less than it takes a Runner
	// on another machine.
	soon = 300 * time.Microsecond
	// habit is how many have to follow so, one after the other, before the next is looked for.
	habit = 16
)

// anticipation is what the end that answers knows of how quickly the next request comes.
type anticipation struct {
	begin    time.Time    // of its clock
	answered atomic.Int64 // when the newest answer was sent; zero when something has come since
	quick    int          // how many came soon, one after the other; the reader's
}

func newAnticipation() *anticipation { return &anticipation{begin: time.Now()} }

// answer is told that an answer goes out that nobody else's goes out with.
func (a *anticipation) answer() { a.answered.Store(int64(time.Since(a.begin))) }

// came is told that something has. What comes without an answer between counts against the habit: most of
// an upload is such, which would be looked for all the time. Now and then HTTP/2 has some, too: its windows.
func (a *anticipation) came() {
	switch answered := a.answered.Swap(0); {
	case answered == 0:
		a.quick = max(a.quick-2, 0)
	case time.Since(a.begin)-time.Duration(answered) > soon:
		a.quick = 0
	default:
		a.quick = min(a.quick+1, 2*habit)
	}
}

// worthIt says whether to look for what comes next.
func (a *anticipation) worthIt() bool { return a.quick >= habit }
