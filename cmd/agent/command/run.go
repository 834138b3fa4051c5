package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run the agent until SIGTERM, then drain",
		Args:    cli.ExactArgs(),
		Example: "  AGENT_TOKEN_FILE=/etc/pipeops/token pipeops-agent run --control-plane-url https://cp.example.com --cluster-name prod-1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Getenv)
			if err != nil {
				return wrong(fmt.Errorf("configuration:\n%w", err))
			}
			kubernetes, err := kubernetesConfig(cfg.Kubeconfig)
			if err != nil {
				return err
			}
			log := newLogger(os.Stderr, cfg.LogLevel)
			replica, err := launchRight(&cfg, log)
			if err != nil {
				return err
			}
			traces, err := tracing.Start(cmd.Context(), "pipeops-agent", version, os.Getenv, log)
			if err != nil {
				return wrong(err)
			}
			defer traces.Stop(cmd.Context())
			a, err := agent.New(agent.Options{
				Config: cfg, Version: version, Log: log, Kubernetes: kubernetes, ReleaseKeys: releaseKeys, Replica: replica,
				Tracer: traces.Provider(),
			})
			if err != nil {
				return err
			}
			log.Info().Str("version", version).Str("cluster", cfg.ClusterName).Str("controlPlane", cfg.ControlPlaneURL).Msg("starting agent")
			return relaunch(cmd.Context(), a.Run(cmd.Context()), launch.Again)
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// relaunch restarts the program if the agent ended for that. An agent that was asked to stop while
// it drained for that stops: the next program would not know.
func relaunch(ctx context.Context, ended error, again func() error) error {
	switch {
	case !errors.Is(ended, update.ErrRelaunch):
		return ended
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the relaunch is what is not to be any more
	}
	return again()
}

// kubernetesConfig returns the pod's service account, or a kubeconfig file.
func kubernetesConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // whose text names a variable that is not read here
		err = errors.New("this is not a pod, and no kubeconfig is named")
	}
	if err != nil {
		return nil, fmt.Errorf("no Kubernetes cluster: %w (fix: run the agent as a pod, or name a kubeconfig with KUBECONFIG or --kubeconfig)", err)
	}
	cfg.UserAgent = "pipeops-agent/" + version
	return cfg, nil
}

// newLogger writes JSON lines, or readable ones to a terminal.
func newLogger(w *os.File, level string) zerolog.Logger {
	var out io.Writer = w
	if term.IsTerminal(int(w.Fd())) {
		out = zerolog.ConsoleWriter{Out: w}
	}
	l, err := zerolog.ParseLevel(level)
	if err != nil {
		l = zerolog.InfoLevel
	}
	return zerolog.New(out).Level(l).With().Timestamp().Logger()
}
