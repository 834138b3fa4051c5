package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
)

// recordings returns the store of recordings, which is where the audit log is.
func (p *auditPlace) recordings() (recording.Store, error) {
	if p.stateDir != "" {
		return agent.RecordingStore(config.Config{StateDir: p.stateDir}, nil), nil
	}
	k, err := p.client()
	if err != nil {
		return nil, err
	}
	return agent.RecordingStore(config.Config{}, k), nil
}

func newRecording() *cobra.Command {
	return group("recording", "Manage the recordings of Runners' exec sessions", newRecordingList(), newRecordingGet(), newRecordingDelete())
}

func newRecordingList() *cobra.Command {
	var (
		place auditPlace
		out   cli.Output
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the recordings of Runners' exec sessions",
		Long: "List the recordings of exec sessions, oldest first.\n\n" +
			"The agent records the sessions that a rule of the policy with `record: true` allows.",
		Args: cli.ExactArgs(),
		Example: `  pipeops-agent recording list --state-dir /var/lib/pipeops-agent
  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent recording list --limit 20`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := place.recordings()
			if err != nil {
				return err
			}
			infos, err := recording.Infos(cmd.Context(), s, limit)
			if err != nil {
				return err
			}
			return out.Write(cmd.OutOrStdout(), infos, func(w io.Writer) { recordingTable(w, infos) })
		},
	}
	place.add(cmd)
	out.AddList(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of recordings, the newest ones")
	return cmd
}

func recordingTable(w io.Writer, infos []recording.Info) {
	cli.Row(w, "RECORDING", "TIME", "RUNNER", "NAMESPACE", "NAME", "BYTES", "REQUEST")
	for _, i := range infos {
		cli.Row(w, i.ID, cli.Time(i.Time), i.Runner, i.Namespace, i.Name, i.Bytes, i.RequestID)
	}
}

func newRecordingGet() *cobra.Command {
	var place auditPlace
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Write a recording to standard output, as asciicast v2",
		Long: "Write a recording to standard output, as asciicast v2, for a player such as `asciinema play`.\n\n" +
			"A recording ends with the marker `ended`. Without it, the agent was killed during the session.",
		Args: cli.ExactArgs("ID"),
		Example: `  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent recording get 20261121t201403-9f86d081884c7d65 > session.cast
  pipeops-agent recording get 20261121t201403-9f86d081884c7d65 --state-dir /var/lib/pipeops-agent > session.cast`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := place.recordings()
			if err != nil {
				return err
			}
			return recording.Write(cmd.Context(), s, args[0], cmd.OutOrStdout())
		},
	}
	place.add(cmd)
	return cmd
}

func newRecordingDelete() *cobra.Command {
	var place auditPlace
	cmd := &cobra.Command{
		Use:     "delete ID...",
		Short:   "Delete recordings, for example to make room for others",
		Args:    cli.LeastArgs("ID"),
		Example: `  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent recording delete 20261121t201403-9f86d081884c7d65`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := place.recordings()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := recording.Delete(cmd.Context(), s, id); err != nil {
					return err
				}
				cli.Say(cmd.OutOrStdout(), "recording %s deleted", id)
			}
			return nil
		},
	}
	place.add(cmd)
	return cmd
}
