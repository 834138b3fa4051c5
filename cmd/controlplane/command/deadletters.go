package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// deadLetters are the subcommands for announcements that their readers could not handle.
type deadLetters struct {
	*app
	broker flags.Broker
	all    bool
	limit  int
}

func newDeadLetters(a *app) *cobra.Command {
	d := &deadLetters{app: a}
	cmd := cli.Group("dead-letter", "Manage announcements that Runners could not process", d.list(), d.requeue(), d.remove())
	cmd.Example = "  pipeops-controlplane dead-letter list\n  pipeops-controlplane dead-letter requeue --all"
	d.broker.AddOwn(cmd.PersistentFlags())
	flags.MarkOfflineOnly(cmd.PersistentFlags(), "broker-url", "broker-url-file", "broker-ca")
	return cmd
}

// with carries out a command. In the data directory itself it connects to the broker as serve does.
func (d *deadLetters) with(cmd *cobra.Command, do func(context.Context, operatorapi.Target) error) error {
	if d.operator.Offline() {
		var cfg controlplane.Config
		if err := d.broker.Apply(&cfg); err != nil {
			return cli.Usage(err)
		}
		if len(cfg.BrokerURLs) == 0 {
			return cli.Usage(errors.New("no broker is named; give --broker-url-file or " + flags.EnvBrokerURL + " as `pipeops-controlplane serve` has it"))
		}
		d.settings.Broker = rabbitmq.Config{URLs: cfg.BrokerURLs, TLS: cfg.BrokerTLS, Log: zerolog.Nop()}
	}
	return d.admin(cmd, do)
}

func (d *deadLetters) list() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List announcements that Runners could not process",
		Long: `List announcements that Runners could not process. The command changes nothing.

REASON comes from RabbitMQ:
  rejected         the Runner could not handle the announcement
  delivery_limit   the Runner crashed on it repeatedly
  maxlen           the Runner's queue was full
  expired          the announcement expired`,
		Example: "  pipeops-controlplane dead-letter list -o json",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.limit < 1 {
				return cli.Usage(errors.New("--limit: must be at least 1"))
			}
			return d.with(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListDeadLetters.Do(ctx, admin, operatorapi.DeadLettersInput{Limit: d.limit})
				if err != nil {
					return err
				}
				list, total := found.Items, found.Total
				if total == 0 && out.Table() {
					d.say("no dead letters")
					return nil
				}
				if total > len(list) {
					d.say("%d of %d; --limit shows more", len(list), total)
				}
				return out.Write(d.out, listOf(list), func(w io.Writer) { deadTable(w, list) })
			})
		},
	}
	cmd.Flags().IntVar(&d.limit, "limit", 100, "maximum number of announcements to list")
	out.AddList(cmd)
	return cmd
}

func deadTable(w io.Writer, list []publish.DeadLetter) {
	cli.Row(w, "ID", "TYPE", "AGENT", "SEQUENCE", "QUEUE", "REASON", "TIMES", "DIED")
	for _, l := range list {
		kind := l.Type
		switch {
		case l.Malformed != "":
			kind = "malformed"
		case !l.Genuine:
			kind += " (not ours)"
		}
		cli.Row(w, l.ID, kind, l.AgentID, l.Sequence, l.Queue, l.Reason, l.Times, cli.Ago(l.At))
	}
}

func (d *deadLetters) requeue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requeue [ID ...]",
		Short: "Send dead letters to their Runners again",
		Long: `Send dead letters again to the Runners that could not process them, once they can.

The dead letters arrive after newer announcements. A Runner that follows sequence numbers
ignores those that are out of date.`,
		Example: "  pipeops-controlplane dead-letter requeue --all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return d.treat(cmd, ids, func(ctx context.Context, admin operatorapi.Target, chosen operatorapi.ChosenInput) (int, error) {
				answer, err := operatorapi.RequeueDeadLetters.Do(ctx, admin, chosen)
				errs := append(make([]error, 0, len(answer.Failed)+1), err)
				for id, why := range answer.Failed {
					errs = append(errs, fmt.Errorf("%s stays: %s", cli.Printable(id), cli.Printable(why)))
				}
				d.say("%d sent again", len(answer.Sent))
				return len(answer.Sent) + len(answer.Failed), errors.Join(errs...)
			})
		},
	}
	d.addAll(cmd)
	return cmd
}

func (d *deadLetters) remove() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete [ID ...]",
		Short:   "Delete dead letters",
		Example: "  pipeops-controlplane dead-letter delete 01a2018e-0100-7eac-b77f-1c92ac91e63c",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return d.treat(cmd, ids, func(ctx context.Context, admin operatorapi.Target, chosen operatorapi.ChosenInput) (int, error) {
				answer, err := operatorapi.DeleteDeadLetters.Do(ctx, admin, chosen)
				d.say("%d deleted", len(answer.Dropped))
				return len(answer.Dropped), err
			})
		},
	}
	d.addAll(cmd)
	return cmd
}

func (d *deadLetters) addAll(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.all, "all", false, "all dead letters, instead of IDs")
}

// treat applies do to the letters with these IDs, or to all.
func (d *deadLetters) treat(cmd *cobra.Command, ids []string, do func(context.Context, operatorapi.Target, operatorapi.ChosenInput) (int, error)) error {
	if d.all == (len(ids) > 0) {
		return cli.Usage(errors.New("give IDs, which `pipeops-controlplane dead-letter list` shows, or --all"))
	}
	return d.with(cmd, func(ctx context.Context, admin operatorapi.Target) error {
		n, err := do(ctx, admin, operatorapi.ChosenInput{Body: operatorapi.ChosenBody{IDs: ids, All: d.all}})
		slices.Sort(ids)
		if missing := len(slices.Compact(ids)) - n; err == nil && missing > 0 {
			return fmt.Errorf("%d of the IDs are not among the dead letters", missing)
		}
		return err
	})
}
