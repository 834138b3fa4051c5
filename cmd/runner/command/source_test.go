package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/sources"
)

func TestSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := []string{"source", "set", "shop", "web", "--type", "app", "--path", "web/app.yaml"}
	with := func(args ...string) []string { return append(append([]string{}, put...), args...) }
	code, out, errs := w.run(t, with("--url", "https://git.example.com/shop/deploy.git", "--wait")...)
	assert.Equal(t, base.ExitOK, code, errs)
	assert.Contains(t, out, "c0ffee12c0ff")
	code, _, errs = w.run(t, with("--url", "https://git.example.com/missing.git", "--wait=5s")...)
	assert.Equal(t, base.ExitAppFailed, code)
	assert.Contains(t, errs, "there is no repository")
	const url = "https://git.example.com/a.git"
	for says, bad := range map[string][]string{
		"--url: only https:// and ssh://":                      with("--url", "http://git.example.com/a.git"),
		"name it with --secret":                                with("--url", "https://me:secret@git.example.com/a.git"),
		"--interval: has to be":                                with("--url", url, "--interval", "1s"),
		"--branch, --tag, --commit: at most one":               with("--url", url, "--branch", "a", "--tag", "b"),
		"--path: has to be a path within":                      with("--url", url, "--path", "../x"),
		"--type: has to be app, manifests":                     with("--url", url, "--type", "helm"),
		"--values-file: has to be a path within":               with("--url", url, "--type", "chart", "--values-file", "/x"),
		"--image: has a tag":                                   with("--url", url, "--image", "registry.example.com/web:1"),
		"--dockerfile: has to be a path within":                with("--url", url, "--image", "registry.example.com/web", "--dockerfile", "../x"),
		"--memory: the request is more than":                   with("--url", url, "--image", "registry.example.com/web", "--memory", "2Gi", "--limit-memory", "1Gi"),
		"--arg 1: is not a valid name of a build argument":     with("--url", url, "--image", "registry.example.com/web", "--arg", "1=2"),
		"--interval: has to be between 30s and 24h\n--prune: ": with("--url", url, "--interval", "1s", "--prune"),
	} {
		code, _, errs := w.run(t, bad...)
		assert.Equal(t, base.ExitUsage, code, bad)
		assert.Contains(t, errs, says)
	}
	command := sources.NewSource(&base.CLI{})
	for field, flags := range sources.FlagOf {
		for flag := range strings.SplitSeq(flags, ", ") {
			if name, isFlag := strings.CutPrefix(flag, "--"); isFlag {
				cmd, _, err := command.Find([]string{"set"})
				require.NoError(t, err)
				assert.NotNil(t, cmd.Flags().Lookup(name), "%s is %s", field, flag)
			}
		}
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{base.ExitOK, "web/app.yaml", []string{"list", "shop"}},
		{base.ExitOK, "repository_not_found", []string{"get", "shop", "web"}},
		{base.ExitOK, "missing.git", []string{"sync", "shop", "web"}},
		{base.ExitOK, "", []string{"delete", "shop", "web"}},
		{base.ExitNotFound, "", []string{"get", "shop", "web"}},
	} {
		code, out, errs := w.run(t, append([]string{"source"}, c.args...)...)
		assert.Equal(t, c.code, code, errs)
		assert.Contains(t, out, c.says)
	}
}

func TestSource_Build(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := []string{"source", "set", "shop", "site", "--url", "https://git.example.com/shop/site.git", "--type", "app"}
	with := func(args ...string) []string { return append(append([]string{}, put...), args...) }
	const image = "registry.example.com/shop/site"
	code, out, errs := w.run(t, with("--path", "app.yaml", "--image", image, "--push-credentials", "registry", "--arg", "A=b", "--wait")...)
	assert.Equal(t, base.ExitOK, code, errs)
	assert.Contains(t, out, image+"@sha256:")
	code, out, errs = w.run(t, "source", "logs", "shop", "site", "-f")
	assert.Equal(t, base.ExitOK, code, errs)
	assert.Contains(t, out, "pushed")

	app := filepath.Join(t.TempDir(), "app.yaml")
	require.NoError(t, os.WriteFile(app, []byte("replicas: 2\n"), 0o600))
	code, _, errs = w.run(t, with("--app-file", app, "--image", image)...)
	assert.Equal(t, base.ExitOK, code, errs)
	for why, bad := range map[string][]string{
		"has a tag":         with("--path", "app.yaml", "--image", image+":latest"),
		"--image is needed": with("--path", "app.yaml", "--context", "app"),
		"only one of":       with("--path", "app.yaml", "--app-file", app, "--image", image),
		"--app-file: is for a source that builds its image: give --image": with("--app-file", app),
		"--context: has to be a path":                                     with("--path", "app.yaml", "--image", image, "--context", "../x"),
		"expected NAME=":                                                  with("--path", "app.yaml", "--image", image, "--arg", "A"),
		"is no name of a namespace":                                       with("--path", "app.yaml", "--image", image, "--build-namespace", "A_b"),
	} {
		code, _, errs := w.run(t, bad...)
		assert.Equal(t, base.ExitUsage, code, bad)
		assert.Contains(t, errs, why)
	}
	code, _, errs = w.run(t, "source", "set", "shop", "plain", "--url", "https://git.example.com/a.git", "--type", "app", "--path", "a")
	assert.Equal(t, base.ExitOK, code, errs)
	code, _, errs = w.run(t, "source", "logs", "shop", "plain")
	assert.Equal(t, base.ExitNotFound, code)
	assert.Contains(t, errs, "has built nothing")
}
