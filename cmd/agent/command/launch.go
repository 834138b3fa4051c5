package command

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/launch"
)

// launchRight continues as a newer confirmed release, if the owner lets the agent of this machine
// update itself. On trial, beside the running agent, it makes this process a replica of that agent.
func launchRight(cfg *config.Config, log zerolog.Logger) (replica string, err error) {
	if !cfg.SelfUpdate {
		return "", nil
	}
	trust, err := cfg.ReleaseTrust(releaseKeys)
	if err != nil {
		return "", wrong(fmt.Errorf("configuration:\n%w", err))
	}
	if as, onTrial := launch.OnTrial(); onTrial { // which has shown that it would take offers
		return trialReplica(cfg, as)
	}
	if cfg.StateDir == "" { // a pod: Kubernetes starts the right one
		return "", nil
	}
	return "", goOn(launch.Launcher{Dir: launch.In(cfg.StateDir), Version: version, Trust: trust}, log)
}

// goOn becomes the confirmed release, if there is one, and returns if this program is the right
// one. A failure does not keep the agent down: the installed program reports it and continues
// itself. Only a program that was started in place of the installed one ends, and the service
// manager starts the installed one again.
func goOn(l launch.Launcher, log zerolog.Logger) error {
	path, as, note, err := l.Start()
	if note != "" {
		log.Error().Msg("self-update: " + note)
	}
	if err == nil && path != "" {
		log.Info().Str("installed", version).Str("version", as).Msg("self-update: continuing with the confirmed release")
		err = launch.Become(path, as)
	}
	switch {
	case err == nil:
		return nil
	case launch.Launched():
		return fmt.Errorf("self-update: %w", err)
	}
	log.Error().Err(err).Str("version", version).Msg("self-update: continuing with the installed program")
	return nil
}

// trialReplica keeps out of the way of the agent that runs: it has another name and
// another health port, no ports for metrics and profiles, and takes no offers.
func trialReplica(cfg *config.Config, as string) (string, error) {
	if as != version {
		return "", fmt.Errorf("this program is %s, not %s", version, as)
	}
	cfg.SelfUpdate, cfg.HealthAddress = false, "127.0.0.1:0"
	cfg.MetricsAddress, cfg.PprofAddress = "", ""
	host, err := os.Hostname()
	return host + "-trial", err
}
