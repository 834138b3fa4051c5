package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// newUpdater returns the agent's updater, or nil unless the cluster owner has enabled self-update.
// An agent that keeps its state in a directory is a service; any other is a pod.
func (a *Agent) newUpdater(engine *app.Engine) (*update.Updater, error) {
	cfg := a.opts.Config
	if !cfg.SelfUpdate {
		return nil, nil
	}
	trust, err := cfg.ReleaseTrust(a.opts.ReleaseKeys)
	if err != nil {
		return nil, err
	}
	windows, err := cfg.Windows()
	if err != nil {
		return nil, err
	}
	rules := update.Rules{Version: a.opts.Version, Trust: trust, Windows: windows}
	target, err := a.updateTarget(rules)
	if err != nil {
		return nil, err
	}
	return update.New(update.Config{
		Rules: rules, Target: target, Now: a.now, Leads: engine.Leads, Changed: a.beatSoon, Log: a.log,
	}), nil
}

func (a *Agent) updateTarget(rules update.Rules) (update.Target, error) {
	cfg := a.opts.Config
	if cfg.StateDir == "" {
		return update.Pods{Cluster: a.kube, Deadline: cfg.UpdateDeadline, Now: a.now}, nil
	}
	roots, err := cfg.DownloadPool()
	if err != nil {
		return nil, err
	}
	return update.Service{
		Dir: launch.In(cfg.StateDir), Version: rules.Version, Trust: rules.Trust, Deadline: cfg.UpdateDeadline,
		Download: update.Download{Mirror: cfg.UpdateMirror, Roots: roots, Proxy: proxyFunc(), Log: a.log},
		Ready:    a.health.ready, Stderr: os.Stderr, Now: a.now, Started: a.started,
	}, nil
}

// updates runs the updater. If another program is to take over, the agent drains as for a stop.
func (a *Agent) updates(ctx context.Context, relaunch context.CancelCauseFunc) error {
	if a.updater == nil {
		return nil
	}
	err := a.updater.Run(ctx)
	if errors.Is(err, update.ErrRelaunch) {
		a.log.Info().Msg("self-update: this agent drains, and the installed program finds out which one goes on")
		relaunch(err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("self-update: %w", err)
	}
	return nil
}

// updateStatus returns the heartbeat's update status; nil unless the cluster owner has enabled
// self-update.
func (a *Agent) updateStatus() *controlapi.Update {
	if a.updater == nil {
		return nil
	}
	status := a.updater.Status()
	return &status
}

// takeOffer hands what a heartbeat was answered to the updater.
func (a *Agent) takeOffer(beat controlapi.Heartbeat, offer *controlapi.Offer) {
	if a.updater != nil && beat.Update != nil {
		a.updater.Offered(offer)
	}
}
