package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// selfUpdate replaces the agent's program, if the cluster owner has enabled that.
type selfUpdate struct {
	opts    Options
	now     func() time.Time
	started time.Time
	log     zerolog.Logger
	kube    *kube.Client
	health  *health
	beat    wake.Signal
	updater *update.Updater // nil unless enabled
}

// open makes the updater, if the cluster owner has enabled self-update. An agent that keeps its
// state in a directory is a service; any other is a pod.
func (u *selfUpdate) open(engine *app.Engine) error {
	cfg := u.opts.Config
	if !cfg.SelfUpdate {
		return nil
	}
	trust, err := cfg.ReleaseTrust(u.opts.ReleaseKeys)
	if err != nil {
		return err
	}
	windows, err := cfg.Windows()
	if err != nil {
		return err
	}
	rules := update.Rules{Version: u.opts.Version, Trust: trust, Windows: windows}
	target, err := u.target(rules)
	if err != nil {
		return err
	}
	u.updater = update.New(update.Config{
		Rules: rules, Target: target, Now: u.now, Leads: engine.Leads, Changed: u.beat.Raise, Log: u.log,
	})
	return nil
}

func (u *selfUpdate) target(rules update.Rules) (update.Target, error) {
	cfg := u.opts.Config
	if cfg.StateDir == "" {
		return update.Pods{Cluster: u.kube, Deadline: cfg.UpdateDeadline, Now: u.now}, nil
	}
	roots, err := cfg.DownloadPool()
	if err != nil {
		return nil, err
	}
	return update.Service{
		Dir: launch.In(cfg.StateDir), Version: rules.Version, Trust: rules.Trust, Deadline: cfg.UpdateDeadline,
		Download: update.Download{Mirror: cfg.UpdateMirror, Roots: roots, Proxy: proxy.FromEnvironment(), Log: u.log},
		Ready:    u.health.ready, Stderr: os.Stderr, Now: u.now, Started: u.started,
	}, nil
}

// run runs the updater. If another program is to take over, the agent drains as for a stop.
func (u *selfUpdate) run(ctx context.Context, relaunch context.CancelCauseFunc) error {
	if u.updater == nil {
		return nil
	}
	err := u.updater.Run(ctx)
	if errors.Is(err, update.ErrRelaunch) {
		u.log.Info().Msg("self-update: draining; the installed program decides which release continues")
		relaunch(err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("self-update: %w", err)
	}
	return nil
}

// status returns the heartbeat's update status; nil unless the cluster owner has enabled
// self-update.
func (u *selfUpdate) status() *controlapi.Update {
	if u.updater == nil {
		return nil
	}
	status := u.updater.Status()
	return &status
}

// take hands what a heartbeat was answered to the updater.
func (u *selfUpdate) take(beat controlapi.Heartbeat, offer *controlapi.Offer) {
	if u.updater != nil && beat.Update != nil {
		u.updater.Offered(offer)
	}
}
