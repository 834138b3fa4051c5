package sources

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sourcePreviews is the flags of a source with previews.
type sourcePreviews struct {
	wanted   bool
	quota    []string
	emails   []string
	groups   []string
	previews runnerapi.SourcePreviews
}

func (p *sourcePreviews) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.wanted, "previews", false, "with --report: deploy each open pull or merge request in a namespace of its own")
	f.StringVar(&p.previews.Path, "preview-path", "", "with --previews: path in the repository (default: --path)")
	f.StringArrayVar(&p.previews.ValuesFiles, "preview-values-file", nil, "with --previews, for chart: further file with values in the repository; may be repeated")
	f.StringVar(&p.previews.Label, "preview-label", "", "with --previews: only requests with this label (default: all)")
	f.Int32Var(&p.previews.Limit, "preview-limit", 0, "with --previews: how many there are at most, from 1 to 50 (default 10)")
	f.StringVar(&p.previews.ExpireAfter, "preview-expire-after", "", "with --previews: how long a commit has one, from 10m to 8760h (default 168h)")
	f.StringSliceVar(&p.previews.Secrets, "preview-secret", nil, "with --previews: Secrets of the namespace that each one gets, except those of forks")
	f.StringSliceVar(&p.quota, "preview-quota", nil, "with --previews: quota of each namespace, as NAME=AMOUNT (default cpu=2,memory=4Gi,pods=20)")
	f.BoolVar(&p.previews.Comment, "preview-comment", false, "with --previews: write the address into a comment on the request")
	f.StringSliceVar(&p.emails, "preview-email", nil, "with --previews: email addresses that may visit them, *@DOMAIN for all of a domain; people sign in by the control plane (default: everyone who can sign in)")
	f.StringSliceVar(&p.groups, "preview-group", nil, "with --previews: groups of the identity provider that may visit them")
	f.BoolVar(&p.previews.Open, "preview-open", false, "with --previews: let everyone visit them without signing in")
}

// into puts the previews into a spec, where they are asked for.
func (p *sourcePreviews) into(cmd *cobra.Command, spec *runnerapi.SourceSpec) error {
	if !p.wanted {
		for _, name := range []string{"path", "values-file", "label", "limit", "expire-after", "secret", "quota", "comment", "email", "group", "open"} {
			if cmd.Flags().Changed("preview-" + name) {
				return fmt.Errorf("--preview-%s: --previews is needed", name)
			}
		}
		return nil
	}
	if len(p.quota) > 0 {
		p.previews.Quota = &runnerapi.NamespaceQuota{}
	}
	for _, s := range p.quota {
		if err := cmdutil.SetQuota(p.previews.Quota, s); err != nil {
			return fmt.Errorf("--preview-quota %s: %w", s, err)
		}
	}
	if len(p.emails)+len(p.groups) > 0 {
		p.previews.Visitors = &runnerapi.Visitors{SignIn: &runnerapi.SignIn{Emails: p.emails, Groups: p.groups}}
	}
	spec.Previews = &p.previews
	return nil
}

func newSourcePreviews(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("previews", "Manage the previews of pull requests", newPreviewList(a), newPreviewApprove(a))
}

func newPreviewList(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use: "list [AGENT] NAME", Short: "List the open requests of a source and their previews",
		Example: "  pipeops-runner source previews list shop web",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		list, err := t.Sources().Previews(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return out.Write(a.Out, list, func(w io.Writer) { printPreviews(w, list) })
	})
	out.Add(cmd)
	return cmd
}

func printPreviews(w io.Writer, list runnerapi.SourcePreviewList) {
	tables.Previews(w, list.Items...)
	for _, p := range list.Items {
		for _, e := range []*runnerapi.SourceError{p.Error, p.SourceError} {
			errorRows(w, strconv.FormatInt(p.Number, 10), e)
		}
	}
	errorRows(w, "ERROR", list.Error)
	if list.Warning != "" {
		cli.Row(w, "WARNING", cli.Printable(list.Warning))
	}
}

// errorRows writes an error of a source, if there is one, after what it is about.
func errorRows(w io.Writer, about string, e *runnerapi.SourceError) {
	if e == nil {
		return
	}
	cli.Row(w, about, e.Code, short(e.Commit), "since "+e.Since)
	cli.Row(w, "", cli.Printable(e.Message))
	cli.Row(w, "FIX", cli.Printable(e.Fix))
}

func newPreviewApprove(a *cmdutil.CLI) *cobra.Command {
	var namespace string
	var write cmdutil.Writing
	var approval runnerapi.CommitApproval
	cmd := &cobra.Command{
		Use: "approve [AGENT] NAME NUMBER --commit COMMIT", Short: "Allow a preview of a fork's commit",
		Long: `Allow a preview of a commit of a fork. Look at the commit first: it runs in the cluster. Another
commit of the request needs another approval. The policy must name approve-preview.`,
		Example:           "  pipeops-runner source previews approve shop web 12 --commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
		Args:              cli.ExactArgs("AGENT", "NAME", "NUMBER"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || number < 1 {
				return cli.Usage(fmt.Errorf("%s: expected the number of a pull or merge request", args[2]))
			}
			if err := commitGiven(approval); err != nil {
				return err
			}
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				if _, err := t.Sources().ApprovePreview(ctx, key, number, approval, write.Options()); err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				a.Say("approved: commit %s of request %d; see what becomes of it with: pipeops-runner source previews list %s %s -n %s",
					short(approval.Commit), number, t.Agent.Name, key.Name, key.Namespace)
				return nil
			})
		},
	}
	cmdutil.NamespaceFlag(cmd, &namespace)
	write.AddWriting(cmd)
	commitFlag(cmd, &approval)
	return cmd
}
