package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func newComponentDelete() *cobra.Command {
	var place componentsPlace
	var volumes bool
	cmd := &cobra.Command{
		Use:   "delete COMPONENT...",
		Short: "Delete components that install has installed",
		Long: "Delete components that install has installed. Namespaces and resource definitions stay, because\n" +
			"they may hold objects of others. Volumes stay unless you give --volumes. A later installation uses\n" +
			"them again.",
		Args: cli.LeastArgs("COMPONENT"),
		Example: `  pipeops-agent component delete grafana loki
  pipeops-agent component delete prometheus --volumes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			i, cluster, err := place.look(cmd, components.Settings{})
			if err != nil {
				return err
			}
			ctx, stop := signals(cmd.Context())
			defer stop()
			return removeComponents(ctx, cmd.OutOrStdout(), i, cluster, args, volumes)
		},
	}
	place.addCluster(cmd)
	cmd.Flags().BoolVar(&volumes, "volumes", false, "delete the volumes, with all data of the components")
	return cmd
}

func removeComponents(ctx context.Context, w io.Writer, i *components.Installer, cluster components.Cluster, names []string, volumes bool) error {
	for _, name := range names {
		left, err := i.Volumes(ctx, name)
		if err != nil {
			return err
		}
		// A component without its releases has only its volumes left.
		if len(cluster.Installed[name]) > 0 || !volumes || len(left) == 0 {
			if err := i.Remove(ctx, cluster, name); err != nil {
				return err
			}
			cli.Say(w, "removed %s", name)
		}
		if err := removeVolumes(ctx, w, i, name, left, volumes); err != nil {
			return err
		}
	}
	return nil
}

func removeVolumes(ctx context.Context, w io.Writer, i *components.Installer, name string, left []components.Volume, remove bool) error {
	for _, v := range left {
		if !remove {
			cli.Say(w, "kept volume %s/%s; delete it with: pipeops-agent component delete %s --volumes", v.Namespace, v.Name, name)
			continue
		}
		if err := i.RemoveVolume(ctx, v); err != nil {
			return err
		}
		cli.Say(w, "deleted volume %s/%s", v.Namespace, v.Name)
	}
	return nil
}
