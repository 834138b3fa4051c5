package render_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

func TestTemplates_CannotReachOut(t *testing.T) {
	t.Setenv("PIPEOPS_SECRET", "hunter2")
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2"), 0o600))
	var pairs []string
	for i, text := range []string{
		`{{ .Files.Get "/etc/passwd" }}{{ .Files.Get "../../../../etc/passwd" }}`,
		`{{ .Files.Get "` + secret + `" }}{{ range .Files.Lines "` + secret + `" }}{{ . }}{{ end }}`,
		`{{ range $path, $_ := .Files.Glob "/**" }}{{ $path }}{{ end }}`,
		"{{ tpl `{{ .Files.Get \"" + secret + "\" }}` . }}",
		`{{ tpl (.Files.Get "/proc/self/environ") . }}`,
		`{{ getHostByName "localhost" }}`,
		`{{ range $key, $_ := lookup "v1" "Secret" "kube-system" "" }}{{ $key }}{{ end }}`,
	} {
		pairs = append(pairs, fmt.Sprintf("web/templates/%d.yaml", i), "made: ["+text+"]\n")
	}
	for _, j := range []render.Job{
		{Type: render.Chart, Path: "web", Files: files(append(pairs, "web/Chart.yaml", chartYAML)...)},
		release(rendertest.Archive(t, append([]string{"web/Chart.yaml", chartYAML}, pairs...)...)),
	} {
		r, err := run(t, j)
		require.NoError(t, err)
		assert.Len(t, r.Texts, len(pairs)/2)
		for i, text := range r.Texts {
			assert.Equal(t, "made: []", strings.TrimSpace(string(text.Body)), pairs[2*i+1])
		}
	}
	for text, refusal := range map[string]string{
		`{{ env "PIPEOPS_SECRET" }}`:              `function "env" not defined`,
		"{{ tpl `{{ expandenv \"$HOME\" }}` . }}": `function "expandenv" not defined`,
		`{{ include "` + secret + `" . }}`:        "no template",
		`{{ readFile "/etc/passwd" }}`:            `function "readFile" not defined`,
	} {
		_, err := run(t, release(template(t, text)))
		assert.ErrorContains(t, err, refusal, text)
	}
}

// TestChild_Caged asks the kernel: every thread has a filter, and the process has its pipes and
// nothing else of the agent.
func TestChild_Caged(t *testing.T) {
	for _, part := range cage.Missing() {
		if strings.HasPrefix(part, "seccomp") {
			t.Skip("this kernel has no " + part)
		}
	}
	t.Setenv("PIPEOPS_SECRET", "hunter2")
	p := rendertest.Process(t)
	looked := false
	p.Lookup = func(context.Context, render.Question) ([]byte, error) { // the child waits meanwhile
		looked = true
		child := childOf(t, p.Command[0])
		environment, err := os.ReadFile(child + "/environ")
		require.NoError(t, err)
		var names []string
		for setting := range strings.SplitSeq(strings.Trim(string(environment), "\x00"), "\x00") {
			name, _, _ := strings.Cut(setting, "=")
			names = append(names, name)
		}
		assert.ElementsMatch(t, []string{"GOMEMLIMIT", "GOMAXPROCS", "HOME", "TZ"}, names)
		assertFiles(t, child)
		threads, err := filepath.Glob(child + "/task/*/status")
		require.NoError(t, err)
		assert.NotEmpty(t, threads)
		for _, thread := range threads {
			status, err := os.ReadFile(thread)
			require.NoError(t, err)
			assert.Contains(t, string(status), "NoNewPrivs:\t1\n")
			assert.Contains(t, string(status), "Seccomp:\t2\n")
		}
		return nil, nil
	}
	_, err := p.Run(t.Context(), release(template(t, `a: {{ lookup "v1" "ConfigMap" "production" "mine" | len }}`)))
	require.NoError(t, err)
	assert.True(t, looked)
}

// childOf returns the folder in /proc of this process' child that runs a program.
func childOf(t *testing.T, program string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	for _, exe := range all {
		process := filepath.Dir(exe)
		status, _ := os.ReadFile(process + "/status")
		if at, err := os.Readlink(exe); err == nil && at == program && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			return process
		}
	}
	require.Fail(t, "the child is not there")
	return ""
}

// assertFiles allows three pipes, and what Go's runtime has opened for timers and for the number of
// its threads.
func assertFiles(t *testing.T, process string) {
	t.Helper()
	files, err := filepath.Glob(process + "/fd/*")
	require.NoError(t, err)
	for _, file := range files {
		at, err := os.Readlink(file)
		require.NoError(t, err)
		switch {
		case len(filepath.Base(file)) == 1 && filepath.Base(file) <= "2":
			assert.Regexp(t, `^pipe:|^/dev/null$`, at, file)
		default:
			assert.Regexp(t, `^anon_inode:\[event(poll|fd)\]$|/cpu\.(max|cfs_[a-z]+_us)$`, at, file)
		}
	}
}

// TestRender_WithoutCage has a kernel or container that does not offer it.
func TestRender_WithoutCage(t *testing.T) {
	agent, escape := rendertest.Process(t).Command, rendertest.Escape(t)
	for _, without := range []string{"landlock", "seccomp", "landlock,seccomp"} {
		p := render.Process{Command: append([]string{escape, "without", without}, agent...)}
		r, err := p.Run(t.Context(), release(template(t, "a: {{ now | date \"2006\" | len }}")))
		require.NoError(t, err, without)
		assert.Contains(t, all(r), "a: 4")
	}
}

func TestRender_TimeZonesWithoutFiles(t *testing.T) {
	const moment = `(toDate "2006-01-02T15:04:05Z07:00" "2026-07-01T12:00:00Z")`
	r, err := run(t, release(template(t, `a: {{ dateInZone "15:04 MST" `+moment+` "America/New_York" }}, {{ date "15:04 MST" `+moment+` }}`)))
	require.NoError(t, err)
	assert.Contains(t, all(r), "a: 08:00 EDT, 12:00 UTC")
}
