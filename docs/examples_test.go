package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

// TestExamples_Apps reads examples/apps as `pipeops-runner deploy -f` does.
func TestExamples_Apps(t *testing.T) {
	index := read(t, "../examples/README.md")
	kinds := map[runnerapi.AppType]bool{}
	for _, file := range examples(t, "apps/*.yaml") {
		app, err := appfile.Read([]byte(read(t, file)))
		require.NoError(t, err, file)
		assert.Empty(t, app.Spec.Validate(), file)
		assert.Empty(t, app.Spec.ValidateName(app.Name), file)
		assert.Equal(t, strings.TrimSuffix(filepath.Base(file), ".yaml"), app.Name, file)
		assert.Contains(t, index, "-f "+strings.TrimPrefix(file, "../")+"`", "a command of examples/README.md")
		if app.Spec.Type == "" {
			app.Spec.Type = runnerapi.TypeDeployment
		}
		kinds[app.Spec.Type] = true
	}
	for _, kind := range []runnerapi.AppType{
		runnerapi.TypeDeployment, runnerapi.TypeStatefulSet, runnerapi.TypeDaemonSet,
		runnerapi.TypeJob, runnerapi.TypeCronJob, runnerapi.TypePipeline,
	} {
		assert.True(t, kinds[kind], "examples/apps has no %s", kind)
	}
}

// TestCIPage_AppIsValid reads the page's only App.
func TestCIPage_AppIsValid(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "deployer/ci.md"), "```yaml\n")
	require.True(t, found)
	text, _, _ := strings.Cut(rest, "```\n")
	app, err := appfile.Read([]byte(text))
	require.NoError(t, err)
	assert.Empty(t, app.Spec.Validate())
}

// TestExamples_CIJobs looks up their commands and flags in the reference.
func TestExamples_CIJobs(t *testing.T) {
	reference, err := clidoc.Read("reference/runner-cli.md")
	require.NoError(t, err)
	sections := strings.Split(reference, "# pipeops-runner ")
	for _, file := range examples(t, "ci/*.yaml") {
		var job map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(read(t, file)), &job), file)
		found := 0
		for line := range strings.Lines(read(t, file)) {
			command := ran.FindStringSubmatch(line)
			if command == nil {
				continue
			}
			found++
			for _, flag := range flagged.FindAllStringSubmatch(command[2], -1) {
				assert.Contains(t, sections[0]+section(sections, command[1]), flag[1], "%s: %s", file, line) // the first has the flags of all
			}
		}
		assert.Equal(t, 2, found, "%s deploys and rolls back", file)
	}
}

var (
	ran     = regexp.MustCompile(`^[ -]*pipeops-runner ([a-z]+)( .*)`)
	flagged = regexp.MustCompile(` (--?[a-z-]+)`)
)

// section returns the part of the reference about one command.
func section(sections []string, verb string) string {
	for _, s := range sections {
		if strings.HasPrefix(s, verb+"\n") {
			return s
		}
	}
	return ""
}

func examples(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../examples", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	return files
}
