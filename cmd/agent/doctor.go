package main

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
		Short: "Find out what keeps the agent from working, and what to do about it",
		Long: "Tries everything that the agent needs: the way to the control plane, its certificate and clock,\n" +
			"the token, the FRP port, the cluster and each right in it, disk and memory. It changes nothing\n" +
			"and may run beside the agent. The exit code is 0 when nothing failed.",
		Args: cobra.NoArgs,
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
	cmd.Flags().BoolVar(&service, "service", false, "use the settings of the agent's service on this machine, below "+serviceDir)
	out.Add(cmd)
	config.AddFlags(cmd.Flags())
	return cmd
}
