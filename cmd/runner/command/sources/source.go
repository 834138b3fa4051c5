// Package sources has the commands about Git sources and builds.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewSource returns the command source.
func NewSource(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("source", "Manage the Git repositories that an agent follows",
		newSourcePut(a), newSourceGet(a), newSourceList(a), newSourceSync(a), newSourceRollback(a), newSourceApprove(a), newSourceWebhook(a), newSourcePreviews(a), newSourceLogs(a), newSourceDelete(a))
}

func newSourcePut(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace, valuesFile, appFile string
	var write cmdutil.Writing
	var spec runnerapi.SourceSpec
	var build sourceBuild
	var report sourceReport
	var previews sourcePreviews
	var promote runnerapi.SourcePromotion
	var chart runnerapi.SourceChart
	var webhook bool
	w := cmdutil.Waiting{}
	cmd := &cobra.Command{
		Use: "set [AGENT] NAME --url URL --type app|manifests|kustomize|chart", Short: "Follow a Git repository and apply its commits",
		Long: `Follow a Git repository. The agent applies its content now and with each new commit. A source that
had this name before is replaced.

--type names what is at --path:

  - app: a file as deploy -f takes it
  - manifests: a file or directory of YAML
  - kustomize: a directory with a kustomization
  - chart: a Helm chart

With --dry-run, the agent fetches the repository and tries everything, but changes nothing.

With --image, the agent builds an image from each commit for an App that names none. It pushes the
image there and deploys it by its digest. If the repository only has a Dockerfile, --app-file
gives the App's spec instead of --path.

With --promote-from, the source follows no branch. It follows the commit that another source has
applied, once that source has been Ready for the time of --after. With --approval, each commit waits
for "source approve" besides.

With --webhook, a push makes the agent look at once. See "source webhook set".

With --report, the agent reports the state of each commit to GitHub, GitLab, Gitea or Forgejo.

With --previews, each open pull request there is deployed in a namespace of its own, until it is
closed. One from a fork waits for "source previews approve".`,
		Example: `  pipeops-runner source set shop web --url https://git.example.com/shop/deploy.git --type app --path web/app.yaml
  pipeops-runner source set shop web --url git@git.example.com:shop/deploy.git --type kustomize --path overlays/production --branch main --secret git-deploy
  pipeops-runner source set shop web --url https://git.example.com/shop/web.git --type app --path deploy/app.yaml --secret git-deploy --image registry.example.com/shop/web --push-credentials registry --wait=15m`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if valuesFile != "" {
				text, err := cli.ReadLimited(valuesFile, cmd.InOrStdin(), cmdutil.MaxManifest)
				if err != nil {
					return cli.Usage(err)
				}
				chart.Values = string(text)
			}
			if appFile != "" {
				text, err := cli.ReadLimited(appFile, cmd.InOrStdin(), cmdutil.MaxManifest)
				if err != nil {
					return cli.Usage(err)
				}
				spec.AppSpec = string(text)
			}
			if err := errors.Join(build.into(&spec), report.into(&spec), previews.into(cmd, &spec)); err != nil {
				return cli.Usage(err)
			}
			if chart.Release != "" || chart.Values != "" || len(chart.ValuesFiles) > 0 {
				spec.Chart = &chart
			}
			if promote != (runnerapi.SourcePromotion{}) {
				spec.Promote = &promote
			}
			if err := sourceMistakes(spec.Validate(args[1])); err != nil {
				return cli.Usage(err)
			}
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				source, err := t.Sources().Set(ctx, key, spec, write.Options())
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if write.DryRun {
					return printSource(a, source, &out)
				}
				if webhook {
					if err := setWebhook(ctx, a, args[0], key); err != nil {
						return err
					}
				}
				return sourceOutcome(ctx, a, t, source, &w, &out)
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	write.AddWriting(cmd)
	w.Add(cmd, 0)
	sourceFlags(cmd, &spec, &chart)
	cmd.Flags().StringVar(&valuesFile, "values", "", "for chart: local file with values, or - for standard input")
	cmd.Flags().StringVar(&appFile, "app-file", "", "for app with --image: local file with the App's spec instead of --path, or - for standard input")
	build.flags(cmd)
	cmd.Flags().BoolVar(&webhook, "webhook", false, "also make a webhook, and print its URL and its secret once")
	report.flags(cmd)
	previews.flags(cmd)
	promotionFlags(cmd, &promote)
	return cmd
}

// setWebhook makes the webhook of a source, and prints it beside what becomes of the source.
func setWebhook(ctx context.Context, a *cmdutil.CLI, agent string, key runnerapi.Key) error {
	l, found, err := a.Find(ctx, agent)
	if err != nil {
		return err
	}
	defer l.Keep.Close()
	hook, err := l.Snapshots().SetSourceWebhook(ctx, found.ID, key)
	if err != nil {
		return err
	}
	a.Say("webhook: %s\nsecret: %s (not shown again)", cli.Printable(hook.URL), cli.Printable(hook.Secret))
	return nil
}

func sourceFlags(cmd *cobra.Command, spec *runnerapi.SourceSpec, chart *runnerapi.SourceChart) {
	fl := cmd.Flags()
	fl.StringVar(&spec.URL, "url", "", "address of the repository: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH")
	fl.StringVar((*string)(&spec.Type), "type", "", "type of the content: app, manifests, kustomize or chart")
	fl.StringVar(&spec.Path, "path", "", "path in the repository (default: its root)")
	fl.StringVar(&spec.Ref.Branch, "branch", "", "branch to follow (default: the repository's default branch)")
	fl.StringVar(&spec.Ref.Tag, "tag", "", "tag to follow")
	fl.StringVar(&spec.Ref.Semver, "semver", "", "range of versions, such as '>=1.2.0 <2': follow the newest tag within it")
	fl.StringVar(&spec.Ref.Commit, "commit", "", "commit to stay at, with all 40 digits")
	fl.StringVar(&spec.App, "app", "", "for app: name of the App (default: the source's name)")
	fl.StringVar(&spec.Interval, "interval", "", "how often to look for a new commit, from 30s to 24h (default 5m)")
	fl.StringVar(&spec.Credentials, "secret", "", "Secret with url, and username and password or identity and known_hosts")
	fl.StringVar(&spec.DecryptionKeys, "decrypt", "", "Secret with age identities in its keys *.agekey, for files that SOPS has encrypted")
	fl.BoolVar(&spec.Prune, "prune", false, "delete objects that have left the repository")
	fl.BoolVar(&spec.ForceConflicts, "force-conflicts", false, "take over fields of the source's objects that other clients have set since")
	fl.BoolVar(&spec.Suspend, "suspend", false, "leave everything as it is until you put the source without this flag")
	fl.StringVar(&chart.Release, "release", "", "for chart: name of the release in its templates (default: the source's name)")
	fl.StringArrayVar(&chart.ValuesFiles, "values-file", nil, "for chart: file with values in the repository; may be repeated; later files override earlier ones")
}

func newSourceGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use: "get [AGENT] NAME", Short: "Show a source with its applied commit and last error",
		Example: "  pipeops-runner source get shop web",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		source, err := t.Sources().Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return printSource(a, source, &out)
	})
	out.Add(cmd)
	return cmd
}

func newSourceList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Source]{
		Short: "List the Git repositories that the agent follows", Example: "pipeops-runner source list shop",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Source] { return c.Sources() },
		List:  func(items []runnerapi.Source) any { return runnerapi.SourceList{Items: items} },
		Table: tables.Sources,
	}.Command(a)
}

func newSourceSync(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var write cmdutil.Writing
	w := cmdutil.Waiting{}
	cmd := a.Named(&cobra.Command{
		Use: "sync [AGENT] NAME", Short: "Check a repository now and apply it again",
		Example: "  pipeops-runner source sync shop web",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		source, err := t.Sources().Sync(ctx, key, write.Options())
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if write.DryRun {
			return printSource(a, source, &out)
		}
		return sourceOutcome(ctx, a, t, source, &w, &out)
	})
	out.Add(cmd)
	write.AddWriting(cmd)
	w.Add(cmd, 0)
	return cmd
}

func newSourceDelete(a *cmdutil.CLI) *cobra.Command {
	return withWebhook(a, a.Deletion(&cobra.Command{
		Short:   "Stop following a repository",
		Long:    "Stop following a repository, and delete its webhook. What the source applied stays.",
		Example: "  pipeops-runner source delete shop web",
	}, "source", func(c *client.Client) cmdutil.Deleter { return c.Sources() }))
}

// sourceOutcome waits, if requested, until the source has been checked. It prints the source and
// returns an error if that failed.
func sourceOutcome(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, source runnerapi.Source, f *cmdutil.Waiting, out *cli.Output) error {
	key := runnerapi.Key{Namespace: source.Namespace, Name: source.Name}
	if !f.Wanted() {
		a.Say("accepted: source %s; see what becomes of it with: pipeops-runner source get %s %s -n %s", key, t.Agent.Name, key.Name, key.Namespace)
		return printSource(a, source, out)
	}
	waitCtx, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	start, said, phase := time.Now(), false, runnerapi.BuildPhase("")
	waits := ""
	newest, err := t.Sources().Wait(waitCtx, key, func(s runnerapi.Source) {
		if h := s.Status.Health; h != nil && s.Status.Phase == runnerapi.SourceProgressing && h.Message != waits {
			waits = h.Message
			a.Say("commit %.12s is applied; %s", s.Status.Commit, cli.Printable(waits))
		}
		if !said && s.Status.Phase == runnerapi.SourcePending && time.Since(start) > time.Second {
			a.Say("the agent looks at %s", cli.Printable(s.Spec.URL))
			said = true
		}
		if b := s.Status.Build; b != nil && s.Status.Phase == runnerapi.SourceBuilding && b.Phase != phase {
			a.Say("build %s of commit %.12s: %s", b.Key(), b.Commit, b.Phase)
			phase = b.Phase
		}
	})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return &cmdutil.ExitError{Err: fmt.Errorf("source %s is not up to date after %s", key, f.Limit), Code: cmdutil.ExitTimeout,
			Fix: "it continues in the cluster: pipeops-runner source get " + t.Agent.Name + " " + key.Name}
	case err != nil:
		return cmdutil.At(t, key.String(), err)
	}
	if err := printSource(a, newest, out); err != nil {
		return err
	}
	if e := newest.Status.Error; e != nil {
		a.SayFailure(cli.Failure{What: fmt.Sprintf("source %s: %s", key, cli.Printable(e.Message)), Fix: cli.Printable(e.Fix), Name: e.Code})
		return &cmdutil.ExitError{Err: errors.New("the source failed"), Code: cmdutil.ExitAppFailed, Told: true}
	}
	if h := newest.Status.Health; h != nil && newest.Status.Phase == runnerapi.SourceDegraded {
		return a.FailedObject(h.Object, h.Message, h.Diagnosis)
	}
	return nil
}

func printSource(a *cmdutil.CLI, s runnerapi.Source, out *cli.Output) error {
	return out.Write(a.Out, s, func(w io.Writer) {
		tables.Sources(w, s)
		cli.Row(w, "URL", s.Spec.URL)
		if s.Status.Tag != "" {
			cli.Row(w, "TAG", cli.Printable(s.Status.Tag))
		}
		if s.Status.CheckedAt != "" {
			cli.Row(w, "CHECKED", s.Status.CheckedAt)
		}
		if h := s.Status.Hold; h != nil {
			cli.Row(w, "HELD", heldAt(*h))
		}
		promotionRows(w, s.Status.Promotion)
		for i, c := range s.Status.History {
			cli.Row(w, []string{"APPLIED", ""}[min(i, 1)], short(c.Commit), c.AppliedAt, revisionOf(c), cli.Printable(c.Tag))
		}
		if b := s.Status.Build; b != nil {
			cli.Row(w, "BUILD", b.Key(), fmt.Sprintf("%.12s", b.Commit), b.Phase, cli.Printable(b.Message))
			cli.Row(w, "IMAGE", b.Image)
		}
		if h := s.Status.Health; h != nil {
			cli.Row(w, "HEALTH", cli.Printable(h.Message))
			cmdutil.DiagnosisRows(w, h.Diagnosis)
		}
		if s := s.Status.Suspension; s != nil {
			cli.Row(w, "SUSPENDED", s.Code, "since "+s.Since)
			cli.Row(w, "", cli.Printable(s.Message))
			cli.Row(w, "FIX", cli.Printable(s.Fix))
		}
		errorRows(w, "ERROR", s.Status.Error)
		reportRows(w, s.Status.Report)
	})
}
