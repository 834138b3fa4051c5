// Package sdnotify reports a process's state to systemd, as sd_notify(3) describes it: ready once
// it serves, what is missing until then (`systemctl status` shows it), and that the process lives.
package sdnotify

import (
	"context"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

const (
	// untilReady is how often readiness is checked before the first time.
	untilReady = 250 * time.Millisecond
	// afterReady is how often it is checked after that, at most.
	afterReady = 10 * time.Second
)

// Look reports whether the process serves, and a status for people.
type Look func(context.Context) (ready bool, status string)

type notifier struct {
	look  Look
	log   zerolog.Logger
	every time.Duration // after the first readiness
	alive bool          // systemd watches for signs of life

	wasReady bool
	last     string
}

// Start reports to systemd, if systemd has started this process and expects reports, until the
// returned function is called. When ctx ends, systemd learns that the process is stopping.
func Start(ctx context.Context, look Look, log zerolog.Logger) (stop func()) {
	if told, _ := daemon.SdNotify(false, "STATUS=starting"); !told {
		return func() {}
	}
	n := &notifier{look: look, log: log, every: afterReady}
	if interval, err := daemon.SdWatchdogEnabled(false); err == nil && interval > 0 {
		n.alive, n.every = true, min(afterReady, interval/3)
	}
	// It outlives ctx by the drain: systemd keeps watching.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.run(life, ctx.Done())
	}()
	return func() {
		cancel()
		<-done
	}
}

func (n *notifier) run(ctx context.Context, stopping <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			n.send(daemon.SdNotifyStopping)
			stopping = nil
		case <-timer.C:
			timer.Reset(n.report(ctx))
		}
	}
}

// report reports changes and returns when to look again.
func (n *notifier) report(ctx context.Context) time.Duration {
	var lines []string
	ready, status := n.look(ctx)
	if ready && !n.wasReady {
		n.wasReady = true
		lines = append(lines, daemon.SdNotifyReady)
	}
	if status = strings.ReplaceAll(status, "\n", " "); status != n.last {
		n.last = status
		lines = append(lines, "STATUS="+status)
	}
	if n.alive {
		lines = append(lines, daemon.SdNotifyWatchdog)
	}
	if len(lines) > 0 {
		n.send(strings.Join(lines, "\n"))
	}
	if n.wasReady {
		return n.every
	}
	return untilReady
}

func (n *notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn().Err(err).Msg("failed to notify systemd of the process's state")
	}
}
