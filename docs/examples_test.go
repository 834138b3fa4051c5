package docs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
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
		require.NoError(t, workload.CheckPatches(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: app.Name}, Spec: app.Spec}), file)
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

func examples(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../examples", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	return files
}
