package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

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
		newBuild(), newUp(name), newDown(name), newList(), newKubeconfig(name), newKubectl(name),
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

var addons = []string{"dns", "metrics"}

func newUp(name *string) *cobra.Command {
	var (
		options cluster.Options
		without []string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a cluster up, building what is missing",
		Example: `  cluster up
  cluster up --name fast --control-plane-only
  cluster up --name large --simulated-nodes 100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, addon := range without {
				if !slices.Contains(addons, addon) {
					return fmt.Errorf("--without %s: there is only dns and metrics", addon)
				}
			}
			options.Name = *name
			options.WithoutDNS = slices.Contains(without, "dns")
			options.WithoutMetrics = slices.Contains(without, "metrics")
			options.Out = cmd.ErrOrStderr()
			c, err := cluster.Up(cmd.Context(), options)
			if err != nil {
				return err
			}
			printUsage(cmd, c)
			return nil
		},
	}
	cmd.Flags().BoolVar(&options.ControlPlaneOnly, "control-plane-only", false, "only etcd and the API server")
	cmd.Flags().IntVar(&options.SimulatedNodes, "simulated-nodes", 0, "how many nodes to simulate beside the real one")
	cmd.Flags().StringSliceVar(&without, "without", nil, "leave out dns or metrics")
	return cmd
}

func printUsage(cmd *cobra.Command, c *cluster.Cluster) {
	cmd.Printf("\ncluster %s is up: Kubernetes %s, node at %s, pods reach this machine at %s or %s\n",
		c.Name, cluster.KubernetesVersion, c.NodeIP(), c.HostIP(), cluster.HostName)
	cmd.Printf("  export KUBECONFIG=%s\n  cluster kubectl --name %s -- get pods -A\n  cluster down --name %s\n",
		c.Kubeconfig(), c.Name, c.Name)
}

func newDown(name *string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a cluster, or what is left of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all {
				return cluster.Down(cmd.Context(), *name)
			}
			clusters, err := cluster.List()
			for _, c := range clusters {
				err = errors.Join(err, c.Down(cmd.Context()))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all clusters")
	return cmd
}

func newList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clusters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := cluster.List()
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, "NAME\tSTATUS\tNODE IP\tAGE\tKUBECONFIG")
			for _, c := range clusters {
				age := "-"
				if !c.Started().IsZero() {
					age = time.Since(c.Started()).Round(time.Second).String()
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name, status(c), c.NodeIP(), age, c.Kubeconfig())
			}
			return table.Flush()
		},
	}
}

func status(c *cluster.Cluster) string {
	switch {
	case c.Ready() && c.ControlPlaneOnly():
		return "up (control plane only)"
	case c.Ready():
		return "up"
	case c.Running():
		return "starting"
	default:
		return "dead"
	}
}

func newKubeconfig(name *string) *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of the administrator's kubeconfig",
		Example: `  export KUBECONFIG=$(cluster kubeconfig)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Get(*name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return err
		},
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
