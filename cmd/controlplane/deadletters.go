package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// deadLetters are the subcommands for announcements that their readers could not handle.
type deadLetters struct {
	*app
	broker brokerFlags
	all    bool
	limit  int
}

func newDeadLetters(a *app) *cobra.Command {
	d := &deadLetters{app: a}
	cmd := group("dead-letters", "Manage announcements that Runners could not process", d.list(), d.requeue(), d.drop())
	cmd.Example = "  pipeops-controlplane dead-letters list\n  pipeops-controlplane dead-letters requeue --all"
	d.broker.addOwn(cmd.PersistentFlags())
	return cmd
}

// with connects to the broker as serve does.
func (d *deadLetters) with(cmd *cobra.Command, do func(context.Context, *announce.DeadLetters) error) error {
	var cfg controlplane.Config
	if err := d.broker.apply(&cfg); err != nil {
		return usageError{err}
	}
	if len(cfg.BrokerURLs) == 0 {
		return usageError{errors.New("no broker is named; give --broker-url-file or " + brokerURL.env + " as `pipeops-controlplane serve` has it")}
	}
	return d.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
		letters, err := admin.DeadLetters(ctx, announce.Config{URLs: cfg.BrokerURLs, TLS: cfg.BrokerTLS, Log: zerolog.Nop()})
		if err != nil {
			return err
		}
		return do(ctx, letters)
	})
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
		Example: "  pipeops-controlplane dead-letters list -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.limit < 1 {
				return usageError{errors.New("--limit: must be at least 1")}
			}
			return d.with(cmd, func(ctx context.Context, letters *announce.DeadLetters) error {
				list, total, err := letters.List(ctx, d.limit)
				if err != nil {
					return err
				}
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
	out.Add(cmd)
	return cmd
}

func deadTable(w io.Writer, list []announce.DeadLetter) {
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
		Example: "  pipeops-controlplane dead-letters requeue --all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return d.treat(cmd, ids, func(ctx context.Context, letters *announce.DeadLetters, chosen func(announce.DeadLetter) bool) (int, error) {
				sent, failed, err := letters.Requeue(ctx, chosen)
				errs := append(make([]error, 0, len(failed)+1), err)
				for id, why := range failed {
					errs = append(errs, fmt.Errorf("%s stays: %w", cli.Printable(id), why))
				}
				d.say("%d sent again", len(sent))
				return len(sent) + len(failed), errors.Join(errs...)
			})
		},
	}
	d.addAll(cmd)
	return cmd
}

func (d *deadLetters) drop() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "drop [ID ...]",
		Short:   "Drop dead letters",
		Example: "  pipeops-controlplane dead-letters drop 01a2018e-0100-7eac-b77f-1c92ac91e63c",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return d.treat(cmd, ids, func(ctx context.Context, letters *announce.DeadLetters, chosen func(announce.DeadLetter) bool) (int, error) {
				dropped, err := letters.Drop(ctx, chosen)
				d.say("%d dropped", len(dropped))
				return len(dropped), err
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
func (d *deadLetters) treat(cmd *cobra.Command, ids []string, do func(context.Context, *announce.DeadLetters, func(announce.DeadLetter) bool) (int, error)) error {
	if d.all == (len(ids) > 0) {
		return usageError{errors.New("give IDs, which `pipeops-controlplane dead-letters list` shows, or --all")}
	}
	return d.with(cmd, func(ctx context.Context, letters *announce.DeadLetters) error {
		n, err := do(ctx, letters, announce.Chosen(ids...))
		slices.Sort(ids)
		if missing := len(slices.Compact(ids)) - n; err == nil && missing > 0 {
			return fmt.Errorf("%d of the IDs are not among the dead letters", missing)
		}
		return err
	})
}
