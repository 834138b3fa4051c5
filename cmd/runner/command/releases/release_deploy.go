package releases

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxValuesFile bounds a file of values.
const maxValuesFile = 1 << 20

// releaseDeploy installs a chart or upgrades a release to it.
type releaseDeploy struct {
	releaseCommand
	spec   runnerapi.ReleaseSpec
	chart  string
	values []string
	sets   []string
}

func newReleaseDeploy(a *base.CLI) *cobra.Command {
	c := &releaseDeploy{releaseCommand: releaseCommand{CLI: a, does: deploys}}
	cmd := &cobra.Command{
		Use: "deploy [AGENT] NAME --chart CHART", Short: "Install a Helm chart, or upgrade a release to it",
		Long: `Install a Helm chart, or upgrade a release to it, and wait until its objects are ready.

CHART is a name in the repository that --repo names, a reference oci://…, or a chart on this
machine. A chart on this machine is a directory, or an archive that helm package wrote. The
values replace all values of an earlier revision.

If you interrupt the command, the deploy continues in the cluster. If the agent ends during the
deploy, it leaves a failed revision, and the next deploy can continue.`,
		Example: `  pipeops-runner helm deploy shop guide --chart ./guide --set greeting=hello
  pipeops-runner helm deploy shop guide --chart ./guide -f values.yaml --dry-run
  pipeops-runner helm deploy guide -l env=prod --chart ./guide --wave 10%`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.gather(); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *base.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				return t.Releases().Deploy(ctx, key, c.spec, opts)
			})
		},
	}
	c.add(cmd)
	c.fleet.Add(cmd)
	f := cmd.Flags()
	f.StringVar(&c.chart, "chart", "", "chart: NAME with --repo, oci://HOST/PATH, a directory or an archive")
	f.StringVar(&c.spec.Chart.Repository, "repo", "", "URL of the chart's repository")
	f.StringVar(&c.spec.Chart.Version, "version", "", "version of the chart, or with --repo a range such as ^1.4 (default: the newest)")
	f.StringVar(&c.spec.Chart.CredentialsSecret, "credentials-secret", "", "Secret in the namespace with url, username and password for the repository or registry")
	f.StringArrayVarP(&c.values, "values", "f", nil, "YAML file of values, or - for standard input; later files override earlier ones")
	f.StringArrayVar(&c.sets, "set", nil, "value as KEY=VALUE, with dots between nested keys; overrides files; true, false, null and whole numbers keep their type, anything else is text, as in Helm")
	f.StringVar(&c.spec.Timeout, "timeout", "", "how long objects may take to become ready, at most 1h (default 5m)")
	f.BoolVar(&c.spec.RollbackOnFailure, "rollback-on-failure", false, "roll back to the last deployed revision if this one fails")
	f.BoolVar(&c.spec.ForceConflicts, "force-conflicts", false, "take over fields of the release's objects that other clients have set since")
	f.BoolVar(&c.spec.Adopt, "adopt", false, "take over a release of this name that the helm program created")
	return cmd
}

// gather makes the spec of the flags.
func (c *releaseDeploy) gather() (err error) {
	switch {
	case c.chart == "":
		return cli.Usage(errors.New("no chart: give --chart NAME with --repo, --chart oci://…, or --chart with a folder or an archive"))
	case strings.HasPrefix(c.chart, "oci://"):
		c.spec.Chart.OCI = c.chart
	case c.spec.Chart.Repository != "":
		c.spec.Chart.Name = c.chart
	default:
		if c.spec.Chart.Archive, err = chartArchive(c.chart); err != nil {
			return cli.Usage(fmt.Errorf("--chart: %w", err))
		}
	}
	c.spec.Values = map[string]any{}
	for _, file := range c.values {
		text, err := base.ReadLimited(file, c.In, maxValuesFile)
		if err != nil {
			return cli.Usage(fmt.Errorf("--values: %w", err))
		}
		values := map[string]any{}
		if err := decode.LimitsFor(maxValuesFile).YAML(text, &values); err != nil {
			return cli.Usage(fmt.Errorf("--values: %s: %w", file, err))
		}
		merge(c.spec.Values, values)
	}
	for i, s := range c.sets {
		if err := set(c.spec.Values, s); err != nil {
			return cli.Usage(fmt.Errorf("--set number %d: %w", i+1, err)) // not quoted: it may be secret
		}
	}
	return nil
}

// merge puts values over others, map by map.
func merge(into, from map[string]any) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		if had, ok := into[key].(map[string]any); ok && isMap {
			merge(had, below)
			continue
		}
		into[key] = value
	}
}

// set puts one value of the command line in.
func set(values map[string]any, text string) error {
	key, value, ok := strings.Cut(text, "=")
	keys := strings.Split(key, ".")
	if !ok {
		return errors.New("expected KEY=VALUE")
	}
	parsed := typed(value)
	for i, k := range keys {
		if k == "" {
			return errors.New("a key is empty")
		}
		if i == len(keys)-1 {
			values[k] = parsed
			return nil
		}
		next, ok := values[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			values[k] = next
		}
		values = next
	}
	return nil
}

// typed returns a value as `helm --set` has it. A fraction stays text: it may be a version, such as
// 1.10.
func typed(value string) any {
	switch word := strings.ToLower(value); word {
	case "true", "false":
		return word == "true"
	case "null":
		return nil
	}
	whole, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(whole, 10) != value {
		return value
	}
	return whole
}

// chartArchive returns a chart of this machine; it packs a folder.
func chartArchive(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w (a chart of a repository wants --repo)", err)
	}
	if !info.IsDir() {
		return base.ReadLimited(name, nil, runnerapi.MaxChartArchive)
	}
	if _, err := os.Stat(filepath.Join(name, "Chart.yaml")); err != nil {
		return nil, fmt.Errorf("%s is no chart: it has no Chart.yaml", name)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	top := "chart"
	if full, err := filepath.Abs(name); err == nil {
		top = filepath.Base(full)
	}
	err = fs.WalkDir(root.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && strings.HasPrefix(entry.Name(), "."): // as .git
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case packed.Len() > runnerapi.MaxChartArchive:
			return fmt.Errorf("%s has more than %d MiB, packed: it holds more than a chart (helm package heeds .helmignore)", name, runnerapi.MaxChartArchive>>20)
		}
		return packFile(out, root, file, path.Join(top, file))
	})
	if err := errors.Join(err, out.Close(), zipped.Close()); err != nil {
		return nil, err
	}
	if packed.Len() > runnerapi.MaxChartArchive {
		return nil, fmt.Errorf("%s has more than %d MiB, packed", name, runnerapi.MaxChartArchive>>20)
	}
	return packed.Bytes(), nil
}

func packFile(out *tar.Writer, root *os.Root, file, as string) error {
	f, err := root.Open(filepath.FromSlash(file))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: as, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, info.Size())
	return err
}
