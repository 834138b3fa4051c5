package controlplane

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// actRunner runs workflows of a repository with act, which understands workflows and actions as
// GitHub does. Their steps run on this machine, without containers and without GitHub.
type actRunner struct {
	t       *testing.T
	program string
	work    string   // the repository
	action  string   // what pipeops/pipeops-vm-agent@v1.2.3 is
	args    []string // of each run
	environ []string
}

// workflowRun is what a run of a workflow showed.
type workflowRun struct {
	ok          bool
	log         string
	summary     string
	annotations []annotation
}

type annotation struct{ Level, File, Line, Message string }

func newActRunner(t *testing.T, vars, job []string) *actRunner {
	t.Helper()
	program, err := programs.Act.Build(t.Context())
	require.NoError(t, err)
	a := &actRunner{t: t, program: program, work: t.TempDir(), action: t.TempDir()}
	for _, file := range []string{"scripts/ci/action.yml", "scripts/ci/run.sh", "scripts/install.sh"} {
		content, err := os.ReadFile(filepath.Join(harness.Root(), file))
		require.NoError(t, err)
		a.put(a.action, file, string(content), 0o700)
	}
	home := t.TempDir()
	a.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CACHE_HOME=" + home, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
	}
	a.args = []string{
		"--json", "--no-cache-server", "--platform", "ubuntu-24.04=-self-hosted", "--workflows", ".github/workflows/deploy.yaml",
		"--local-repository", "pipeops/pipeops-vm-agent@v1.2.3=" + a.action,
	}
	for _, v := range vars {
		a.args = append(a.args, "--var", v)
	}
	for _, v := range job {
		a.args = append(a.args, "--env", v)
	}
	workflow, err := os.ReadFile(filepath.Join(harness.Root(), "examples/ci/actions.yaml"))
	require.NoError(t, err)
	a.put(a.work, ".github/workflows/deploy.yaml", string(workflow), 0o600)
	a.git("init", "--quiet", "--initial-branch=main")
	return a
}

func (a *actRunner) put(dir, file, content string, mode os.FileMode) {
	a.t.Helper()
	path := filepath.Join(dir, file)
	require.NoError(a.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(a.t, os.WriteFile(path, []byte(content), mode))
}

func (a *actRunner) git(args ...string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = a.work, a.environ
	out, err := cmd.CombinedOutput()
	require.NoError(a.t, err, string(out))
	return strings.TrimSpace(string(out))
}

// commit commits the App's file, and returns the commit.
func (a *actRunner) commit(app string) string {
	a.t.Helper()
	a.put(a.work, "app.yaml", app, 0o600)
	a.git("add", "--all")
	a.git("commit", "--quiet", "--message", "an App")
	return a.git("rev-parse", "HEAD")
}

// on runs the workflow for an event.
func (a *actRunner) on(event string, more ...string) (run workflowRun) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), a.program, slices.Concat([]string{event}, a.args, more)...)
	cmd.Dir, cmd.Env = a.work, a.environ
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		require.NoError(a.t, err)
	}
	run.ok, run.log = err == nil, string(out)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Command, Content, Arg string
			KVPairs               map[string]string `json:"kvPairs"`
			StepID                []string          `json:"stepID"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // "Error: Job 'deploy' failed"
		}
		switch line.Command {
		case "error", "warning", "notice":
			run.annotations = append(run.annotations, annotation{line.Command, line.KVPairs["file"], line.KVPairs["line"], line.Arg})
		case "summary":
			if len(line.StepID) == 1 { // act repeats the summary of a composite action's step for the action
				run.summary += line.Content
			}
		}
	}
	require.NoError(a.t, lines.Err())
	return run
}

// TestCI_Workflow runs examples/ci/actions.yaml: it deploys each push, and rolls back by hand. It
// shows the result in the job's summary, and a mistake at its line.
func TestCI_Workflow(t *testing.T) {
	suite.Release(t, "the example of GitHub's workflow, run by act")
	p, f := startWithFake(t)
	audit := &auditLog{}
	p.labelled("shop", nil).serveAudited(audit)
	p.bind(f, "ci", ofShop)
	site, _ := releaseSite(t)
	site = slices.DeleteFunc(site, func(v string) bool { return !strings.HasPrefix(v, "PIPEOPS_") && !strings.HasPrefix(v, "CURL_") })
	a := newActRunner(t, []string{
		"PIPEOPS_RELEASE_KEYS=" + releaseKey, "PIPEOPS_CONTROL_PLANE_URL=" + p.Advertised().API, "PIPEOPS_CA_FINGERPRINT=" + p.fingerprint(),
	}, slices.Concat(site, f.gitHub()("of-the-job")))
	app := func(field string) string {
		return "apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web, namespace: production}\nspec:\n  image: registry.example.com/shop/web:1\n  " + field + "\n"
	}

	first := a.commit(app("ports: [{port: 8080}]"))
	run := a.on("push")
	require.True(t, run.ok, run.log)
	assert.Contains(t, run.log, "signed by "+releaseKey)
	assert.Contains(t, run.summary, "| --- |", "the summary has a table")
	assert.Contains(t, run.summary, "registry.example.com/shop/web:"+first)
	assert.Empty(t, run.annotations)
	assert.Contains(t, strings.Join(audit.commands(), "\n"), "put-app done ci oidc/repo:shop/web:environment:prod repository=shop/web")

	second := a.commit(app("ports: [{port: 8081}]"))
	run = a.on("push")
	require.True(t, run.ok, run.log)
	assert.Contains(t, run.summary, "registry.example.com/shop/web:"+second)
	run = a.on("workflow_dispatch", "--input", "rollback=true")
	require.True(t, run.ok, run.log)
	assert.Contains(t, run.summary, "registry.example.com/shop/web:"+first)

	a.commit(app("prots: [{port: 8080}]"))
	run = a.on("push")
	assert.False(t, run.ok, run.log)
	require.NotEmpty(t, run.annotations, run.log)
	assert.Equal(t, []string{"error", "app.yaml", "6"}, []string{run.annotations[0].Level, run.annotations[0].File, run.annotations[0].Line})
	assert.Contains(t, run.annotations[0].Message, "prots")
}
