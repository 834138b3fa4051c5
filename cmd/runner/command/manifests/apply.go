// Package manifests has the commands about sets of manifests.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// applyCommand applies a set of manifests.
type applyCommand struct {
	*cmdutil.CLI
	out       cli.Output
	namespace string
	set       string
	files     []string
	prune     bool
	wait      cmdutil.Waiting
	fleet     cmdutil.Fleet
	opts      runnerapi.ApplyOptions
	cmdutil.Writing
}

// NewApply returns the command apply.
func NewApply(a *cmdutil.CLI) *cobra.Command {
	c := &applyCommand{CLI: a}
	cmd := &cobra.Command{
		Use: "apply [AGENT] -f FILE --applyset NAME", Short: "Apply manifests as a set",
		Long: `Apply manifests as a set. The agent applies them server-side and in the right order, and does
not take over what other clients own. It deletes objects from an earlier apply of the set that
are no longer among the manifests.

FILE is a file with YAML documents or JSON, a directory, or - for standard input. In a
directory, the command reads the files that end in .yaml, .yml or .json, in the order of their
names.`,
		Example: `  pipeops-runner apply shop -f extras.yaml --applyset web-extras
  pipeops-runner apply shop -f extras.yaml --applyset web-extras --diff --dry-run
  pipeops-runner apply shop -f extras.yaml --applyset web-extras --wait=60s`,
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.read()
			if err != nil {
				return cli.Usage(err)
			}
			c.opts.NoPrune, c.opts.WriteOptions = !c.prune, c.Options()
			return c.fleet.Each(cmd.Context(), a, args[0], &c.out, func(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target) error {
				one := *c
				one.CLI = a
				return one.run(ctx, t, all)
			})
		},
	}
	c.out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	fl := cmd.Flags()
	fl.StringArrayVarP(&c.files, "filename", "f", nil, "file or directory with manifests, or - for standard input; may be repeated")
	fl.StringVar(&c.set, "applyset", "", "name of the set")
	fl.BoolVar(&c.opts.Diff, "diff", false, "show the changes, with the values of Secrets masked")
	fl.BoolVar(&c.prune, "prune", true, "delete objects that left the set")
	fl.BoolVar(&c.opts.ForceConflicts, "force-conflicts", false, "take over fields of the set's objects that other clients have set since")
	c.wait.Add(cmd, 0)
	c.AddWriting(cmd)
	c.fleet.Add(cmd)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // fails for an unknown flag only
	return cmd
}

// read joins the files, each as separate documents.
func (c *applyCommand) read() (*manifestFiles, error) {
	switch {
	case len(c.files) == 0:
		return nil, errors.New("no manifests: give them with -f FILE")
	case c.set == "":
		return nil, errors.New("no name of the set that the manifests are: give it with --applyset NAME")
	}
	all := &manifestFiles{}
	for _, name := range c.files {
		paths := []string{name}
		if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
			if paths, err = manifestsIn(name); err != nil {
				return nil, err
			}
		}
		for _, path := range paths {
			text, err := cli.ReadLimited(path, c.In, runnerapi.MaxManifestsBody)
			if err != nil {
				return nil, err
			}
			all.add(path, text)
		}
	}
	if len(all.text) > runnerapi.MaxManifestsBody {
		return nil, fmt.Errorf("the manifests have more than %d bytes together: apply them as several sets", runnerapi.MaxManifestsBody)
	}
	return all, nil
}

func manifestsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: has no file that ends in .yaml, .yml or .json", dir)
	}
	return paths, nil
}

func (c *applyCommand) run(ctx context.Context, t *cmdutil.Target, all *manifestFiles) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: c.set}
	result, err := t.Manifests().Apply(ctx, key, all.text, c.opts)
	if err != nil {
		return cmdutil.At(t, "set "+key.String(), all.locateError(err))
	}
	all.locateAll(&result)
	if c.wait.Wanted() && !c.opts.DryRun && result.Failed == 0 && !result.Ready {
		if err := c.await(ctx, t, key, &result); err != nil {
			return err
		}
	}
	if err := c.out.Write(c.Out, result, func(w io.Writer) { applyTable(w, result) }); err != nil {
		return err
	}
	if c.opts.Diff && c.out.Table() {
		for _, o := range result.Objects {
			for line := range strings.Lines(o.Diff) {
				cli.Say(c.Out, "%s", cli.Printable(strings.TrimRight(line, "\n")))
			}
		}
	}
	return c.verdict(key, result)
}

// await waits for readiness and reports each object's changes.
func (c *applyCommand) await(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, result *runnerapi.ApplyResult) error {
	limited, cancel := context.WithTimeout(ctx, c.wait.Limit)
	defer cancel()
	said := map[runnerapi.ManifestRef]string{}
	newest, err := t.Manifests().Wait(limited, key, func(s runnerapi.ManifestSet) {
		for _, o := range s.Objects {
			now := string(o.State) + " " + cli.Printable(o.Message)
			if said[o.ManifestRef] != now {
				said[o.ManifestRef] = now
				c.Say("%s: %s", o.ManifestRef, strings.TrimSpace(now))
			}
		}
	})
	states := map[runnerapi.ManifestRef]runnerapi.SetObject{}
	for _, o := range newest.Objects {
		states[o.ManifestRef] = o
	}
	for n := range result.Objects {
		o := &result.Objects[n]
		if now, known := states[o.ManifestRef]; known && o.State != "" {
			o.State, o.Message, o.Diagnosis, o.LastLines = now.State, now.Message, now.Diagnosis, now.LastLines
		}
	}
	result.Ready = newest.Ready != nil && *newest.Ready
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return cmdutil.At(t, "set "+key.String()+": waiting", err)
	}
	return nil
}

// verdict turns what became of a set into the command's error.
func (c *applyCommand) verdict(key runnerapi.Key, result runnerapi.ApplyResult) error {
	for _, o := range result.Objects {
		for _, w := range o.Warnings {
			c.Say("warning: %s: %s", o.ManifestRef, w)
		}
		if o.Problem != nil {
			c.SayFailure(cli.FailureOf(o.Problem))
		}
	}
	if result.Problem != nil {
		c.SayFailure(cli.FailureOf(result.Problem))
	}
	switch {
	case result.Failed > 0 || result.Problem != nil:
		return &cmdutil.ExitError{Err: fmt.Errorf("set %s: %d of %d objects failed", key, result.Failed, len(result.Objects)), Code: cmdutil.ExitFailure,
			Fix: "correct them, and apply the set again: what was done stays"}
	case !c.wait.Wanted() || c.opts.DryRun || result.Ready:
		return nil
	}
	for _, o := range result.Objects {
		if o.State == runnerapi.ObjectFailed {
			return c.FailedObject(o.String(), o.Message, o.Diagnosis)
		}
	}
	return &cmdutil.ExitError{Err: fmt.Errorf("set %s is not ready after %s", key, c.wait.Limit), Code: cmdutil.ExitTimeout, Fix: "it continues in the cluster: see pipeops-runner applyset get"}
}

func applyTable(w io.Writer, result runnerapi.ApplyResult) {
	cli.Row(w, "OBJECT", "ACTION", "STATE", "MESSAGE")
	for _, o := range result.Objects {
		message := o.Message
		if o.Problem != nil {
			message = o.Problem.Detail
		}
		cli.Row(w, o.String(), string(o.Action), string(o.State), message)
	}
}
