package controlplane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	// releaseKey has signed what releaseSite serves, and otherKey has not.
	releaseKey = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	otherKey   = "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
)

// ciInput is an input of the action, or of the component.
type ciInput struct {
	Required bool
	Default  any
}

// ciAction is scripts/ci/action.yml.
type ciAction struct {
	Inputs map[string]ciInput
	Runs   struct {
		Using string
		Steps []struct {
			Uses, Shell, Run string
			Env              map[string]string
		}
	}
}

// ciJob is the job of scripts/ci/templates/deploy/template.yml.
type ciJob struct {
	IDTokens  map[string]struct{ Aud string } `json:"id_tokens"`
	Variables map[string]string
	Script    []string
}

func readCI(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "scripts/ci", name))
	require.NoError(t, err)
	return string(text)
}

func action(t *testing.T) (a ciAction) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readCI(t, "action.yml")), &a))
	return a
}

func component(t *testing.T) (wanted map[string]ciInput, job ciJob) {
	t.Helper()
	head, body, found := strings.Cut(readCI(t, "templates/deploy/template.yml"), "\n---\n")
	require.True(t, found)
	var spec struct {
		Spec struct{ Inputs map[string]ciInput }
	}
	require.NoError(t, yaml.Unmarshal([]byte(head), &spec))
	jobs := map[string]ciJob{}
	require.NoError(t, yaml.Unmarshal([]byte(body), &jobs))
	return spec.Spec.Inputs, jobs["$[[ inputs.job ]]"]
}

var (
	ofAction    = regexp.MustCompile(`\$\{\{ ([a-z0-9_.-]+) \}\}`)
	ofComponent = regexp.MustCompile(`\$\[\[ ([a-z0-9_.-]+) \]\]`)
)

// filled replaces expressions by values. Each has to be there.
func filled(t *testing.T, expressions *regexp.Regexp, text string, values map[string]string) string {
	t.Helper()
	return expressions.ReplaceAllStringFunc(text, func(found string) string {
		name := expressions.FindStringSubmatch(found)[1]
		value, known := values[name]
		require.True(t, known, "%s is no input", found)
		return value
	})
}

// given returns the inputs with their defaults, as expressions name them.
func given(t *testing.T, wanted map[string]ciInput, inputs map[string]string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for name, in := range wanted {
		value, ok := inputs[name]
		if !ok {
			require.NotNil(t, in.Default, "the input %s is required", name)
			value = fmt.Sprint(in.Default)
		}
		values["inputs."+name] = value
	}
	for name := range inputs {
		require.Contains(t, wanted, name)
	}
	return values
}

// TestCI_Inputs: each input gets to run.sh, as a variable that it knows, and none gets into its
// text.
func TestCI_Inputs(t *testing.T) {
	script := readCI(t, "run.sh")
	a := action(t)
	require.Len(t, a.Runs.Steps, 1)
	step := a.Runs.Steps[0]
	assert.Equal(t, "composite", a.Runs.Using)
	assert.Equal(t, "sh", step.Shell)
	assert.Empty(t, step.Uses, "what is used has to be pinned by its commit")
	wanted, job := component(t)
	require.Len(t, job.Script, 1)
	for _, check := range []struct {
		expressions *regexp.Regexp
		inputs      map[string]ciInput
		run         string
		env         map[string]string
		besides     []string // inputs that are about the job itself
	}{
		{ofAction, a.Inputs, step.Run, step.Env, nil},
		{ofComponent, wanted, job.Script[0], job.Variables, []string{"job", "stage", "image", "rules", "resource-group"}},
	} {
		assert.NotContains(t, check.run, "inputs.")
		used := slices.Clone(check.besides)
		for variable, value := range check.env {
			assert.Contains(t, script, variable, "run.sh reads it")
			if at := check.expressions.FindStringSubmatch(value); at != nil && strings.HasPrefix(at[1], "inputs.") {
				used = append(used, strings.TrimPrefix(at[1], "inputs."))
			}
		}
		assert.ElementsMatch(t, slices.Collect(maps.Keys(check.inputs)), used)
	}
	assert.Equal(t, script, job.Script[0], "fix: go generate ./scripts/ci")
	assert.Equal(t, "$[[ inputs.control-plane-url ]]", job.IDTokens["PIPEOPS_OIDC_TOKEN"].Aud)
}

// TestCI_Examples: the pipelines in examples/ci give the inputs that there are, and pin what they
// use.
func TestCI_Examples(t *testing.T) {
	read := func(name string, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(harness.Root(), "examples/ci", name))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, into))
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	read("actions.yaml", &workflow)
	steps := workflow.Jobs["deploy"].Steps
	require.Len(t, steps, 2)
	assert.Regexp(t, "@[0-9a-f]{40}$", steps[0].Uses)
	assert.Equal(t, "pipeops/pipeops-vm-agent/scripts/ci@"+steps[1].With["version"], steps[1].Uses)
	given(t, action(t).Inputs, steps[1].With)

	var pipeline struct {
		Include []struct {
			Remote string
			Inputs map[string]any
		}
	}
	read("gitlab.yaml", &pipeline)
	require.Len(t, pipeline.Include, 2)
	wanted, _ := component(t)
	for _, include := range pipeline.Include {
		texts := map[string]string{}
		for name, value := range include.Inputs {
			texts[name] = fmt.Sprint(value)
		}
		assert.True(t, strings.HasSuffix(include.Remote, "/"+texts["version"]+"/scripts/ci/templates/deploy/template.yml"), include.Remote)
		given(t, wanted, texts)
	}
}

// releaseSite serves a version with pipeops-runner, as a mirror. It returns the environment with
// which curl finds it, and the checksum of install.sh.
func releaseSite(t *testing.T) (environ []string, install string) {
	t.Helper()
	const version = "v1.2.3"
	program, err := programs.Runner.Build(t.Context())
	require.NoError(t, err)
	runner, err := os.ReadFile(program)
	require.NoError(t, err)
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	require.NoError(t, err)
	name := "pipeops_1.2.3_linux_" + runtime.GOARCH
	archive := tar.NewWriter(compressed)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: name + "/pipeops-runner", Mode: 0o755, Size: int64(len(runner))}))
	_, err = archive.Write(runner)
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())
	script, err := os.ReadFile(filepath.Join(harness.Root(), "scripts/install.sh"))
	require.NoError(t, err)
	sum := func(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
	// As `make release` stamps it.
	script = bytes.Replace(script, []byte(`RELEASE_VERSION="dev"`), []byte(`RELEASE_VERSION="`+version+`"`), 1)
	script = bytes.Replace(script, []byte(`RELEASE_SHA256SUMS=""`), []byte(`RELEASE_SHA256SUMS="`+sum(packed.Bytes())+" "+name+`.tar.gz"`), 1)
	files := map[string][]byte{name + ".tar.gz": packed.Bytes(), "install.sh": script}
	files["SHA256SUMS"] = []byte(sum(packed.Bytes()) + "  " + name + ".tar.gz\n")
	key, err := os.ReadFile(filepath.Join(harness.Root(), "internal/release/testdata/plain.key"))
	require.NoError(t, err)
	secret, err := release.ParseSecretKey(key, "")
	require.NoError(t, err)
	files["SHA256SUMS.minisig"] = secret.Sign(files["SHA256SUMS"], "pipeops "+version+" SHA256SUMS")
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, found := files[strings.TrimPrefix(r.URL.Path, "/github.com/pipeops/pipeops-vm-agent/releases/download/"+version+"/")]
		if !found {
			http.NotFound(w, r)
			return
		}
		_, err := w.Write(content)
		assert.NoError(t, err)
	}))
	t.Cleanup(site.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), 0o600))
	return []string{"PIPEOPS_MIRROR=" + site.URL, "CURL_CA_BUNDLE=" + ca, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, sum(script)
}

// runnerOfGitHub runs the action as a runner of GitHub does.
type runnerOfGitHub struct {
	t                   *testing.T
	environ             []string
	work                string
	summary, path, envs string
}

func newRunnerOfGitHub(t *testing.T, environ []string) *runnerOfGitHub {
	t.Helper()
	dir := t.TempDir()
	g := &runnerOfGitHub{t: t, work: t.TempDir(), summary: filepath.Join(dir, "summary"), path: filepath.Join(dir, "path"), envs: filepath.Join(dir, "env")}
	for _, file := range []string{g.summary, g.path, g.envs} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	g.environ = append(slices.Clone(environ), "GITHUB_ACTIONS=true", "RUNNER_TEMP="+t.TempDir(), "GITHUB_WORKSPACE="+g.work,
		"GITHUB_STEP_SUMMARY="+g.summary, "GITHUB_PATH="+g.path, "GITHUB_ENV="+g.envs, "GITHUB_ACTION_PATH="+filepath.Join(harness.Root(), "scripts/ci"))
	return g
}

// uses runs the action with inputs, and returns what it printed and its exit code.
func (g *runnerOfGitHub) uses(inputs map[string]string) (string, int) {
	g.t.Helper()
	a := action(g.t)
	values := given(g.t, a.Inputs, inputs)
	values["github.action_path"] = filepath.Join(harness.Root(), "scripts/ci")
	step := a.Runs.Steps[0]
	environ := slices.Clone(g.environ)
	for name, value := range step.Env {
		environ = append(environ, name+"="+filled(g.t, ofAction, value, values))
	}
	return shell(g.t, g.work, environ, "sh", step.Run)
}

// shell runs a script as CI systems do: from a file.
func shell(t *testing.T, dir string, environ []string, program, script string) (string, int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "step")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "-e", file)
	cmd.Dir, cmd.Env = dir, environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), string(out))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func text(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}

// TestCI_GitHub deploys with the action, and goes on with pipeops-runner in a later step.
func TestCI_GitHub(t *testing.T) {
	p, f := startWithFake(t)
	audit := &auditLog{}
	p.labelled("shop", nil).serveAudited(audit)
	p.bind(f, "ci", ofShop)
	site, _ := releaseSite(t)
	g := newRunnerOfGitHub(t, slices.Concat(site, f.gitHub()("of-the-job")))
	with := map[string]string{
		"version": "v1.2.3", "release-keys": releaseKey, "runner": "ci", "control-plane-url": p.Advertised().API, "ca-fingerprint": p.fingerprint(),
		"command": "deploy shop web --image registry.example.com/shop/web:1 --port 8080 --wait=0 --patience 10s",
	}
	changed := func(name, value string) map[string]string {
		other := maps.Clone(with)
		other[name] = value
		return other
	}

	said, code := g.uses(with)
	require.Zero(t, code, said)
	assert.Contains(t, said, "signed by "+releaseKey)
	assert.Contains(t, text(t, g.summary), "| --- |", "the summary has a table")
	assert.Contains(t, strings.Join(audit.commands(), "\n"), "put-app done ci oidc/repo:shop/web:environment:prod repository=shop/web")

	// A later step of the job has the program and where it calls.
	later := append(slices.Clone(g.environ), strings.Split(strings.TrimSpace(text(t, g.envs)), "\n")...)
	later = append(later, "PATH="+strings.TrimSpace(text(t, g.path))+":"+os.Getenv("PATH"))
	said, code = shell(t, g.work, later, "bash", "pipeops-runner status shop web --patience 10s")
	require.Zero(t, code, said)
	assert.Contains(t, said, "registry.example.com/shop/web:1")

	said, code = g.uses(changed("command", "status shop away --patience 1s"))
	assert.Equal(t, 4, code, "the job fails with the command's code: %s", said)
	assert.Contains(t, said, "::error::")

	// Inputs are words, whatever they say.
	for name, value := range map[string]string{
		"command": "status shop $(touch${IFS}ran) `touch ran` ; touch ran", "runner": "ci; touch ran", "version": "v1.2.3'; touch ran; '",
		"control-plane-url": "https://a\nPATH=" + g.work, "release-keys": "$(touch ran)",
	} {
		said, code = g.uses(changed(name, value))
		assert.NotZero(t, code, "%s: %s", name, said)
		assert.NoFileExists(t, filepath.Join(g.work, "ran"), name)
	}
	assert.NotContains(t, text(t, g.envs), "PATH=")
	for name, value := range map[string]string{"release-keys": otherKey, "version": "v1.2.4"} {
		said, code = g.uses(changed(name, value))
		assert.Contains(t, []int{5, 6}, code, "%s: %s", name, said)
	}
	said, code = g.uses(changed("release-keys", ""))
	assert.Equal(t, 2, code, said)
}

// TestCI_GitLab deploys with the component: the job has one token for all commands.
func TestCI_GitLab(t *testing.T) {
	p, f := startWithFake(t)
	audit := &auditLog{}
	p.labelled("shop", nil).serveAudited(audit)
	p.bind(f, "ci", ofShop)
	site, install := releaseSite(t)
	wanted, job := component(t)
	run := func(change map[string]string) (string, int) {
		t.Helper()
		with := map[string]string{
			"version": "v1.2.3", "install-sha256": install, "runner": "ci", "control-plane-url": p.Advertised().API, "ca-fingerprint": p.fingerprint(),
			"command": "deploy shop web --image registry.example.com/shop/web:$CI_COMMIT_SHA --port 8080 --wait=0 --patience 10s",
		}
		maps.Copy(with, change)
		values, temporary := given(t, wanted, with), t.TempDir()
		environ := append(slices.Clone(site), "TMPDIR="+temporary)
		for name, token := range job.IDTokens {
			environ = append(environ, name+"="+f.idToken(filled(t, ofComponent, token.Aud, values), nil))
		}
		for name, value := range job.Variables { // GitLab expands variables in these
			environ = append(environ, name+"="+strings.ReplaceAll(filled(t, ofComponent, value, values), "$CI_COMMIT_SHA", "3f2a9c1"))
		}
		defer func() {
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			for _, entry := range left {
				assert.False(t, strings.HasPrefix(entry.Name(), "pipeops."), "the key goes with the job")
			}
		}()
		return shell(t, t.TempDir(), environ, "bash", job.Script[0])
	}
	said, code := run(nil)
	require.Zero(t, code, said)
	assert.Contains(t, strings.Join(audit.commands(), "\n"), "put-app done ci oidc/repo:shop/web:environment:prod")
	said, code = run(map[string]string{"command": "status shop web -o json --patience 10s"})
	require.Zero(t, code, said)
	assert.Contains(t, said, "registry.example.com/shop/web:3f2a9c1")
	said, code = run(map[string]string{"install-sha256": strings.Repeat("0", 64)})
	assert.Equal(t, 2, code, said)
	assert.Contains(t, said, "install-sha256")
	said, code = run(map[string]string{"command": "status shop away --patience 1s"})
	assert.Equal(t, 4, code, said)
}
