package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// exchange is a request that comes so long after the answer before, and its answer.
func exchange(a *anticipation, after time.Duration) {
	time.Sleep(after) // of a clock that is not real
	a.came()
	a.answer()
}

func exchanges(a *anticipation, times int) {
	for range times {
		exchange(a, soon/2)
	}
}

// TestItTakesAHabitToLook: requests that come soon after the answer before, each of them.
func TestItTakesAHabitToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnticipation()
		time.Sleep(time.Second)
		exchanges(a, 1) // before which there was no answer
		for n := range habit {
			if a.worthIt() {
				t.Fatalf("looks after %d", n)
			}
			exchanges(a, 1)
		}
		exchanges(a, 100)
		if !a.worthIt() {
			t.Error("does not look after 100")
		}
	})
}

// TestALookThatWasInVainEndsTheHabit at once.
func TestALookThatWasInVainEndsTheHabit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnticipation()
		time.Sleep(time.Second)
		exchanges(a, 3*habit)
		exchange(a, soon+time.Microsecond)
		exchanges(a, habit-1)
		if a.worthIt() {
			t.Error("looks again too soon")
		}
		exchanges(a, 1)
		if !a.worthIt() {
			t.Error("never looks again")
		}
	})
}

// TestAnUploadIsNotLookedFor after its first pieces, which nothing answers; but a window now and then does no harm.
func TestAnUploadIsNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnticipation()
		for range 20 * habit {
			exchanges(a, 4)
			a.came() // the answer's window
			a.came() // and the next request
			a.answer()
		}
		if !a.worthIt() {
			t.Error("does not look where windows come")
		}
		for range habit {
			a.came()
		}
		if a.worthIt() {
			t.Error("looks for an upload")
		}
	})
}
