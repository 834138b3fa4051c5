package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/archive"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxCopied bounds how many files, directories and links one copy takes out.
const maxCopied = 10_000_000

// copyCommand copies files between a container and this machine: as an archive, through
// the tar that is in the container's image.
type copyCommand struct {
	*cmdutil.CLI
	namespace string
	opts      runnerapi.ExecOptions // pod and container
	maxSize   string

	name    string // the App
	remote  string // a path in the container
	local   string // a path here, or "-"
	limits  archive.Limits
	tally   archive.Tally
	leftOut leftOut
	caveat  string // of the tally's text when it fails
}

// NewCopy returns the command cp.
func NewCopy(a *cmdutil.CLI) *cobra.Command {
	c := &copyCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "cp [AGENT] SOURCE DESTINATION",
		Short: "Copy files from or to a container of an App",
		Long: `Copy a file or a directory from or to a container of an App. NAME:PATH is the path in the
container of App NAME. The other path is on this machine. It can be - for a single file on
standard input or output. Write a local path with a colon as ./like:this.

If DESTINATION is a directory, the copy goes into it. Otherwise, the copy gets that name. Modes
and times (to the second) are kept, owners are not. Symbolic links stay links. A copy from a
container leaves out links that lead out of the copied directory. Its files appear on this
machine when they are complete.

The container's image must contain tar. The cluster owner's policy must name the command
exec-app: nothing else allows it.`,
		Example: "  pipeops-runner cp shop web:/var/log/app ./logs\n  pipeops-runner cp shop ./site web:/srv/\n  pipeops-runner cp shop web:/etc/app.conf - | less",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cli.ExactArgs("AGENT", "SOURCE", "DESTINATION")(cmd, args); err != nil {
				return err
			}
			return c.parse(args[1], args[2])
		},
		ValidArgsFunction: completeCopy(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			do := c.download
			if _, _, into := inContainer(args[2]); into {
				do, c.caveat = c.upload, " were sent; the last file may be incomplete in the container"
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error { return c.run(ctx, t, do) })
		},
	}
	f := cmd.Flags()
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	podFlags(cmd, &c.opts.Pod)
	f.StringVarP(&c.opts.Container, "container", "c", "", "container (default: the App's own)")
	f.StringVar(&c.maxSize, "max-size", "100Gi", "maximum size of a copy from a container, in bytes")
	return cmd
}

// completeCopy offers agents, then files.
func completeCopy(a *cmdutil.CLI) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.CompleteAgent(cmd, args, typed)
	}
}

// inContainer takes NAME:PATH apart.
func inContainer(arg string) (name, path string, ok bool) {
	name, path, ok = strings.Cut(arg, ":")
	ok = ok && name != "" && !strings.ContainsAny(name, `/\.`) && filepath.VolumeName(arg) == ""
	return name, path, ok
}

func (c *copyCommand) parse(source, destination string) error {
	name, path, out := inContainer(source)
	c.local = destination
	if !out {
		name, path, _ = inContainer(destination)
		c.local = source
	}
	if _, _, into := inContainer(destination); into == out {
		return cli.Usage(errors.New("one of SOURCE and DESTINATION is NAME:PATH, the other a path on this machine"))
	}
	if path == "" || c.local == "" || strings.ContainsRune(path, 0) {
		return cli.Usage(errors.New("a path is missing; NAME:. is the directory that the container's programs run in"))
	}
	size, err := quantity.ParseQuantity(c.maxSize)
	if err != nil || size.Sign() <= 0 {
		return cli.Usage(fmt.Errorf("--max-size %q is not a size, such as 100Gi", c.maxSize))
	}
	c.name, c.remote = name, path
	c.limits = archive.Limits{Entries: maxCopied, Bytes: size.Value()}
	return nil
}

// run copies, and reports how much was copied and what was skipped, however it ends.
func (c *copyCommand) run(ctx context.Context, t *cmdutil.Target, do func(context.Context, *tarCall) error) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: c.name}
	shown := c.show()
	err := do(ctx, &tarCall{Client: t.Client, key: key, opts: c.opts, recorded: recorded(c.CLI, false)})
	shown()
	left := c.leftOut.print(c.CLI)
	switch {
	case ctx.Err() != nil:
		c.Say("interrupted; copied before: %s%s", &c.tally, c.caveat)
		return &cmdutil.ExitError{Err: ctx.Err(), Code: cmdutil.ExitInterrupted, Told: true}
	case cli.IsUsage(err): // it is about this machine
		return err
	case err != nil && !errors.Is(err, errNoTar) && (c.tally.Bytes() > 0 || c.tally.Files() > 0):
		c.Say("not all was copied; before it failed: %s%s", &c.tally, c.caveat)
		return cmdutil.At(t, key.String(), err)
	case err != nil:
		return cmdutil.At(t, key.String(), err)
	}
	c.Say("copied %s", &c.tally)
	if left > 0 {
		return fmt.Errorf("%d of what was to be copied were left out", left)
	}
	return nil
}

// leftOut counts the files that were not copied. It names the first of them.
type leftOut struct {
	count int
	named []string
}

const maxNamed = 20

func (l *leftOut) add(name, why string) {
	if l.count++; l.count <= maxNamed {
		l.named = append(l.named, fmt.Sprintf("left out %q: %s", name[:min(len(name), 512)], why))
	}
}

// print shows them, and returns how many there are.
func (l *leftOut) print(a *cmdutil.CLI) int {
	for _, line := range l.named {
		a.Say("%s", line)
	}
	if more := l.count - len(l.named); more > 0 {
		a.Say("left out: %d more", more)
	}
	return l.count
}

var errNothing = errors.New("nothing came")

// counted reports whether anything was read at all.
type counted struct {
	io.Reader
	any bool
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.any = c.any || n > 0
	return n, err
}
