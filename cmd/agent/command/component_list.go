package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
)

func newComponentList() *cobra.Command {
	var (
		place componentsPlace
		out   cli.Output
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the components, and what of them the cluster has",
		Args:  cli.ExactArgs(),
		Example: `  pipeops-agent component list
  pipeops-agent component list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, cluster, err := place.look(cmd, components.Settings{})
			if err != nil {
				return err
			}
			states, err := components.States(cmd.Context(), i.Client, workloadhealth.New(i.Config, diagnose.DefaultStabilization))
			if err != nil {
				return err
			}
			all := components.Statuses(cluster, states)
			return out.Write(cmd.OutOrStdout(), all, func(w io.Writer) { statusTable(w, all) })
		},
	}
	place.addCluster(cmd)
	out.AddList(cmd)
	return cmd
}

func statusTable(w io.Writer, all []components.Status) {
	cli.Row(w, "COMPONENT", "STATE", "RELEASE", "VERSION", "NEWEST", "AGE", "PROVIDES")
	for _, s := range all {
		if len(s.Releases) == 0 {
			state := "absent"
			if s.Present != "" {
				state = "others': " + s.Present
			}
			cli.Row(w, s.Component, state, "-", "-", "-", "-", s.What)
		}
		for _, r := range s.Releases {
			cli.Row(w, s.Component, stateOf(s, r), r.Name, r.Version, r.Newest, cli.Ago(r.Changed), s.What)
		}
	}
	for _, s := range all {
		if s.State != nil && !s.State.Ready {
			cli.Say(w, "%s: %s: %s%s", s.Component, s.State.Workload, s.State.Message, fixOf(s.State))
		}
	}
}

// stateOf is Helm's word for a release that is not whole, and else the state of its pods.
func stateOf(s components.Status, r components.ReleaseStatus) string {
	switch {
	case r.Status != components.Deployed || s.State == nil:
		return r.Status
	case s.State.Ready:
		return "ready"
	case s.State.Cause != "":
		return s.State.Cause
	}
	return "starting"
}

func fixOf(s *components.State) string {
	if s.Fix == "" {
		return ""
	}
	return " (fix: " + s.Fix + ")"
}
