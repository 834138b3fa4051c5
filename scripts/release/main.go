// Command release makes everything that is published for a version: programs and
// archives for each platform, images, Helm charts, manifests and installers that
// are pinned to them, a list of what is in them (SBOM), their provenance, checksums,
// and the maintainer's signatures. The same commit gives the same bytes.
// docs/contributing/publishing.md describes how to publish and how to check.
//
//	go run ./scripts/release --version v1.2.3 --output dist/v1.2.3 --sign KEYFILE
//	go run ./scripts/release sign dist/v1.2.3 --key KEYFILE
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// platforms are what the programs are published for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// shipped are the programs of a release.
var shipped = []program{
	{name: "pipeops-agent", about: "Turns a Kubernetes cluster into a deployment target", pkg: "./cmd/agent", commands: true, image: agentImage, updates: true, trusts: true},
	{name: "pipeops-runner", about: "Deploys to clusters that agents have connected", pkg: "./cmd/runner", commands: true, image: "pipeops/runner"},
	// It runs where the operator's services run.
	{name: "pipeops-controlplane", about: "Registers agents, and leads Runners to them", pkg: "./cmd/controlplane", commands: true, image: "pipeops/controlplane", dataDir: "/var/lib/pipeops-controlplane", linuxOnly: true, trusts: true},
}

// files go into every archive beside the programs.
var files = []string{"LICENSE", "README.md", "CHANGELOG.md", "docs", "examples", "deployments"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	r := release{programs: shipped, files: files}
	var names []string
	var keyFile, passphraseFile, trusted, expires string
	cmd := &cobra.Command{
		Use:          "release --version VERSION --output DIR",
		Short:        "Make and sign all that is published for a version",
		Example:      "  go run ./scripts/release --version v1.2.3 --output dist/v1.2.3 --sign ../keys/pipeops.key --passphrase-file ../keys/passphrase",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if !published.ValidVersion(r.version) {
				return fmt.Errorf("--version %s: write it as vMAJOR.MINOR.PATCH or vMAJOR.MINOR.PATCH-PRERELEASE, e.g. v1.2.3-rc.1", r.version)
			}
			if r.platforms, err = parsePlatforms(names); err != nil {
				return err
			}
			if err := checkChartRegistry(r.chartRegistry); err != nil {
				return err
			}
			if r.time, err = commitTime(cmd.Context(), r.root); err != nil {
				return err
			}
			if r.expires, err = expiry(expires, r.time); err != nil {
				return err
			}
			if err := r.keys(keyFile, passphraseFile, trusted); err != nil {
				return err
			}
			if keyFile != "" {
				if err := errors.Join(checkFuture(r.expires, time.Now()), checkCommit(r.commit), committed(cmd.Context(), r.root)); err != nil {
					return err
				}
			}
			r.out = cmd.OutOrStdout()
			if err := r.make(cmd.Context()); err != nil {
				return err
			}
			return chartPusher{&r}.run()
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.version, "version", "", "what to call it, e.g. v1.2.3")
	f.StringVar(&r.commit, "commit", "none", "commit to stamp the programs with")
	f.StringVar(&r.dir, "output", "", "directory to make; it must not exist")
	f.StringVar(&r.root, "root", ".", "top folder of the repository")
	f.StringVar(&r.controlPlane, "control-plane-url", "", "control plane of those who run the installer without naming one")
	f.StringVar(&r.chartRegistry, "chart-registry", "", "push the charts there when all is made, e.g. oci://ghcr.io/pipeops/charts")
	f.StringVar(&keyFile, "sign", "", "minisign secret key to sign with")
	f.StringVar(&passphraseFile, "passphrase-file", "", "file with the passphrase of that key")
	f.StringVar(&trusted, "trust", "", "minisign public keys, separated by commas, whose releases these agents take (default: that of --sign)")
	f.StringVar(&expires, "expires", "", "when agents stop taking this release, RFC 3339 (default 180 days after its commit)")
	f.StringSliceVar(&names, "platform", platforms, "platforms to build for")
	for _, required := range []string{"version", "output"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	cmd.AddCommand(newSignCommand())
	return cmd
}

func parsePlatforms(names []string) (list []v1.Platform, err error) {
	for _, name := range names {
		p, err := v1.ParsePlatform(name)
		if err != nil || p.OS == "" || p.Architecture == "" {
			return nil, fmt.Errorf("--platform %s: write it as OS/ARCHITECTURE, e.g. linux/arm64", name)
		}
		list = append(list, *p)
	}
	return list, nil
}

// commitTime returns the time for all files, which is the same for every build of a commit. Without
// git, SOURCE_DATE_EPOCH sets it (reproducible-builds.org).
func commitTime(ctx context.Context, root string) (time.Time, error) {
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is to be a number of seconds: %w", err)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask git for the commit's time: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// committed requires that everything that is signed is in a commit. A copy without git is what its
// owner says it is.
func committed(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=all") // go builds what git does not know of, too
	cmd.Dir = root
	if changed, err := cmd.Output(); err == nil && len(changed) > 0 {
		return fmt.Errorf("--sign: there are changes that are in no commit (fix: commit them, or git stash -u):\n%s", changed)
	}
	return nil
}

// make makes all of it beside its place and moves it there: half a release never
// looks like one.
func (r *release) make(ctx context.Context) (err error) {
	r.manifest = published.Manifest{Version: r.version, Commit: r.commit, Expires: r.expires}
	if _, err := os.Stat(r.dir); err == nil {
		return fmt.Errorf("--output %s is there already (fix: remove it, or name another)", r.dir)
	}
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	if r.root, err = filepath.Abs(r.root); err != nil { // nfpm takes paths from there
		return err
	}
	if r.staging, err = os.MkdirTemp(filepath.Dir(r.dir), ".release-"); err != nil {
		return err
	}
	if r.staging, err = filepath.Abs(r.staging); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.staging)) }()
	for _, step := range []func(context.Context) error{
		r.compile, r.bare, images{r}.run, r.manifests, r.charts, r.archives, r.manuals, packager{r}.run, formulas{r}.run, r.scripts,
		inventory{r}.run, r.versionFile, attester{r}.run, r.prove,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := os.Chmod(r.publish(), 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	return os.Rename(r.publish(), r.dir)
}
