package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newDoctor() *cobra.Command {
	var (
		out     cli.Output
		bundle  string
		service bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what the agent needs, and show how to fix what fails",
		Long: "Check everything that the agent needs, and print a fix for each failure.\n\n" +
			"The checks cover the path to the control plane, its certificate and clock, the token and the\n" +
			"FRP port. They also cover the cluster, each permission in it, disk and memory. The command\n" +
			"changes nothing and can run beside the agent.\n\n" +
			"The exit code is 0 when no check fails.",
		Args: cli.ExactArgs(),
		Example: `  pipeops-agent doctor --service
  pipeops-agent doctor --config agent.yaml -o json
  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent doctor
  pipeops-agent doctor --service --bundle support.tar.gz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if service {
				if err := adoptService(); err != nil {
					return err
				}
			}
			opts := doctor.Options{Version: version, ReleaseKeys: releaseKeys}
			opts.Config, opts.ConfigErr = config.Load(cmd.Flags(), os.Getenv)
			opts.Kubernetes, opts.KubernetesErr = kubernetesConfig(opts.Config.Kubeconfig)
			report := doctor.Examine(cmd.Context(), opts)
			if err := out.Write(cmd.OutOrStdout(), report, report.Table); err != nil {
				return err
			}
			if bundle != "" {
				if err := doctor.WriteBundle(cmd.Context(), bundle, opts, report); err != nil {
					return err
				}
				cli.Say(cmd.ErrOrStderr(), "written, without secrets: %s", bundle)
			}
			if n := report.Failures(); n > 0 {
				return fmt.Errorf("%d of %d checks failed", n, len(report.Findings))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "write a .tar.gz for support: report, configuration, versions, pods and logs, without secrets")
	cmd.Flags().BoolVar(&service, "service", false, "use the settings of the agent's service on this machine, from "+serviceDir)
	out.Add(cmd)
	config.AddFlags(cmd.Flags())
	return cmd
}
