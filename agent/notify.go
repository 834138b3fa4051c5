package agent

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

// notifier reports the agent's state to systemd: ready once it is registered and its tunnel is up,
// what is missing until then (`systemctl status` shows it), and that the process lives.
type notifier struct {
	ready    func(context.Context) error
	degraded func() string // what is amiss although it is ready
	log      zerolog.Logger
	every    time.Duration // after the first readiness
	alive    bool          // systemd watches for signs of life

	wasReady bool
	last     string
}

// notify reports to systemd, if systemd has started this process and expects reports, until the
// returned function is called.
func (a *Agent) notify(ctx context.Context) (stop func()) {
	if told, _ := daemon.SdNotify(false, "STATUS=starting"); !told {
		return func() {}
	}
	n := &notifier{ready: a.health.ready, degraded: a.health.degraded, log: a.log, every: afterReady}
	if interval, err := daemon.SdWatchdogEnabled(false); err == nil && interval > 0 {
		n.alive, n.every = true, min(afterReady, interval/3)
	}
	// It outlives ctx by the drain: systemd goes on watching.
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

func (n *notifier) run(ctx context.Context, draining <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			n.send(daemon.SdNotifyStopping)
			draining = nil
		case <-timer.C:
			timer.Reset(n.look(ctx))
		}
	}
}

// look reports changes and returns when to look again.
func (n *notifier) look(ctx context.Context) time.Duration {
	var lines []string
	status := "ready"
	if err := n.ready(ctx); err != nil {
		status = strings.ReplaceAll(err.Error(), "\n", " ")
	} else if !n.wasReady {
		n.wasReady = true
		lines = append(lines, daemon.SdNotifyReady)
	}
	if worse := n.degraded(); worse != "" && status == "ready" {
		status += "; " + strings.ReplaceAll(worse, "\n", " ")
	}
	if status != n.last {
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
		n.log.Warn().Err(err).Msg("systemd could not be told how the agent is")
	}
}
