package command

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func newComponentUpgrade() *cobra.Command {
	var place componentsPlace
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade the installed components to this program's versions",
		Long: "Upgrade the components that this command has installed to the versions that this program knows.\n\n" +
			"Give the same file of settings as to install: its values replace the earlier ones.",
		Args:    cli.ExactArgs(),
		Example: `  pipeops-agent component upgrade -f components.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := place.settings()
			if err != nil {
				return err
			}
			i, cluster, err := place.look(cmd, settings)
			if err != nil {
				return err
			}
			settings.Components = only(settings.Components, cluster)
			settings.Choose(slices.Sorted(maps.Keys(cluster.Installed)), components.Auto)
			plan, err := components.NewPlan(cluster, settings)
			if err != nil {
				return err
			}
			return carryOut(cmd, i, plan)
		},
	}
	place.addCharts(cmd)
	return cmd
}

// only returns the settings of what is installed.
func only(all map[string]components.Setting, cluster components.Cluster) map[string]components.Setting {
	installed := maps.Clone(all)
	maps.DeleteFunc(installed, func(name string, _ components.Setting) bool { return len(cluster.Installed[name]) == 0 })
	return installed
}
