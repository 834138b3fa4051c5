// Package timerslack has Go's monitor thread take less of a busy process' CPU.
//
// That thread (sysmon) sleeps for 20 µs at a time while goroutines come and go, and with the
// system's own slack of 50 µs it wakes thirteen thousand times a second: 4 to 5 % of a core in each
// process that is busy with small requests, a tenth of what a request through the tunnel takes of the
// control plane. There is nothing to set it by in Go; but how late Linux may wake whoever sleeps is a
// setting of each thread, which new threads and programs inherit (prctl(2), PR_SET_TIMERSLACK).
package timerslack

import "time"

// Wanted is how late whoever sleeps may be woken. Timers of this product are of tens of milliseconds. What
// waits for the monitor waits longer by it: the turn that a blocking system call holds until the monitor gives it
// to another goroutine, and a goroutine that was just made ready, until an idle thread takes it over from a busy one.
const Wanted = 500 * time.Microsecond

// envRaised tells a program that it was started for this, so that a system which does not keep the
// setting starts it no more than twice.
const envRaised = "PIPEOPS_TIMER_SLACK_RAISED"
