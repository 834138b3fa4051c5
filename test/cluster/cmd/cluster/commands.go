package main

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Real Kubernetes clusters for tests and demos, on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	name := root.PersistentFlags().String("name", cluster.DefaultName, "which cluster")
	root.AddCommand(
		newBuild(), newUp(name), newDown(name), newKubectl(name),
		newLaunch(), newInit(),
	)
	return root
}

func newBuild() *cobra.Command {
	var simulation bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build what clusters run, if anything is missing (about 8 minutes the first time)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cluster.Build(cmd.Context(), simulation, cmd.ErrOrStderr()); err != nil {
				return err
			}
			cmd.Println("everything is built")
			return nil
		},
	}
	cmd.Flags().BoolVar(&simulation, "simulation", false, "what simulated nodes need too")
	return cmd
}

func newUp(name *string) *cobra.Command {
	var options cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a cluster up, building what is missing",
		Example: `  cluster up
  cluster up --name fast --control-plane-only
  cluster up --name large --simulated-nodes 100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Name = *name
			options.Out = cmd.ErrOrStderr()
			c, err := cluster.Up(cmd.Context(), options)
			if err != nil {
				return err
			}
			printUsage(cmd, c)
			return nil
		},
	}
	cmd.Flags().BoolVar(&options.ControlPlaneOnly, "control-plane-only", false, "etcd, the API server and the garbage collector alone")
	cmd.Flags().IntVar(&options.SimulatedNodes, "simulated-nodes", 0, "how many nodes to simulate beside the real one")
	cmd.Flags().BoolVar(&options.WithoutMetrics, "without-metrics", false, "leave out metrics-server")
	return cmd
}

func printUsage(cmd *cobra.Command, c *cluster.Cluster) {
	cmd.Printf("\ncluster %s is up: Kubernetes %s, node at %s, pods reach this machine at %s or %s\n",
		c.Name, cluster.KubernetesVersion, c.NodeIP(), c.HostIP(), cluster.HostName)
	cmd.Printf("  export KUBECONFIG=%s\n  cluster kubectl --name %s -- get pods -A\n  cluster down --name %s\n",
		c.Kubeconfig(), c.Name, c.Name)
}

func newDown(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove a cluster, or what is left of it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cluster.Down(cmd.Context(), *name) },
	}
}

func newKubectl(name *string) *cobra.Command {
	return &cobra.Command{
		Use:     "kubectl -- ARGS",
		Short:   "Run kubectl against a cluster",
		Example: `  cluster kubectl -- get pods -A`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Get(*name)
			if err != nil {
				return err
			}
			kubectl := c.KubectlCommand(cmd.Context(), args...)
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return kubectl.Run()
		},
	}
}
