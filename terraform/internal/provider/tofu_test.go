package provider

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// module is the folder of the provider's module.
const module = "../.."

// tofu is OpenTofu with the provider as it is built here. Nothing comes from a registry.
type tofu struct {
	t       *testing.T
	program string
	dir     string // of the configuration
	environ []string
}

// goCommand runs go in the module, and returns what it printed.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func newTofu(t *testing.T, environ ...string) *tofu {
	t.Helper()
	dir := t.TempDir()
	goCommand(t, "build", "-o", filepath.Join(dir, "terraform-provider-pipeops"), ".")
	settings := filepath.Join(dir, "tofurc")
	require.NoError(t, os.WriteFile(settings, []byte(`provider_installation {
  dev_overrides { "pipeops/pipeops" = "`+dir+`" }
}
`), 0o600))
	return &tofu{
		t: t, program: goCommand(t, "tool", "-n", "-modfile=tools/go.mod", "tofu"),
		environ: append(os.Environ(), append(environ, "TF_CLI_CONFIG_FILE="+settings, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")...),
	}
}

// use copies an example, in which the next commands run.
func (f *tofu) use(example string) {
	f.t.Helper()
	f.dir = f.t.TempDir()
	require.NoError(f.t, os.CopyFS(f.dir, os.DirFS(filepath.Join(module, "examples", example))))
}

// run runs a command, and returns what it printed and its exit code.
func (f *tofu) run(args ...string) (string, int) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), f.program, append(args, "-no-color")...)
	cmd.Dir, cmd.Env = f.dir, f.environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(f.t, err, new(*exec.ExitError), string(out))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs a command that succeeds.
func (f *tofu) must(args ...string) string {
	f.t.Helper()
	out, code := f.run(args...)
	require.Zero(f.t, code, out)
	return out
}

// unchanged requires that the cluster has what the configuration says.
func (f *tofu) unchanged(vars ...string) {
	f.t.Helper()
	out, code := f.run(append([]string{"plan", "-detailed-exitcode"}, vars...)...)
	require.Zero(f.t, code, out)
}

// TestOpenTofu_ControlPlane applies an operator's example with the real OpenTofu.
func TestOpenTofu_ControlPlane(t *testing.T) {
	suite.Release(t, "the examples, applied by OpenTofu")
	p := planetest.Start(t)
	f := newTofu(t, envOperator+"="+operator(t, p, administration.RoleOperator), "TF_VAR_webhook_url=https://hooks.example.com/a")
	f.use("control-plane")
	f.must("validate")
	out := f.must("apply", "-auto-approve")
	assert.Contains(t, out, "3 added")
	assert.NotContains(t, out, "hooks.example.com", "it is sensitive")
	f.unchanged()
	var outputs map[string]struct{ Value any }
	require.NoError(t, json.Unmarshal([]byte(f.must("output", "-json")), &outputs))
	assert.Contains(t, outputs["token"].Value, "@"+strings.TrimPrefix(p.URL(), "https://"))

	require.NoError(t, p.Runners.Revoke(t.Context(), "ci"))
	_, code := f.run("plan", "-detailed-exitcode")
	assert.Equal(t, 2, code, "it is not there any more")
	f.must("apply", "-auto-approve")
	f.must("state", "rm", "pipeops_webhook.failures")
	f.must("import", "pipeops_webhook.failures", "failures")
	f.unchanged()
	f.must("destroy", "-auto-approve")
	hooks, err := p.Webhooks.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, hooks)
}

// TestOpenTofu_App deploys to a whole cluster, and waits for the outcome.
func TestOpenTofu_App(t *testing.T) {
	suite.Release(t, "an App in a cluster that runs it, by OpenTofu")
	cluster := kubetest.Full(t)
	image, err := cluster.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	p := planetest.Start(t)
	runAgent(t, p, cluster, map[string]string{"env": "prod"})
	file := runner(t, p)
	f := newTofu(t, envRunner+"="+file, "TF_VAR_image="+image)
	f.use("app")
	f.must("validate")
	out := f.must("apply", "-auto-approve")
	assert.Contains(t, out, "1 added")
	assert.Contains(t, out, "http://web.production.svc", "the output")
	f.unchanged()

	// Somebody else changes the image.
	t.Setenv(envRunner, file)
	key := runnerapi.Key{Namespace: defaultNamespace, Name: "web"}
	require.NoError(t, newClients("test", settings{}).on(t.Context(), clusterName, func(ctx context.Context, c *client.Client) error {
		now, err := c.Apps().Get(ctx, key)
		if err != nil {
			return err
		}
		require.Equal(t, runnerapi.PhaseHealthy, now.Status.Phase)
		now.Spec.Image = image + "-gone"
		_, err = c.Apps().Deploy(ctx, key, now.Spec, runnerapi.WriteOptions{})
		return err
	}))
	out, code := f.run("plan", "-detailed-exitcode")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, image+"-gone", "the plan shows the drift")
	f.must("apply", "-auto-approve")
	f.unchanged()

	out, code = f.run("apply", "-auto-approve", "-var", "image="+image+"-gone")
	assert.Equal(t, 1, code)
	assert.Contains(t, strings.Join(strings.Fields(out), " "), "fix: ", "the cause of the failed rollout")
	assert.Contains(t, out, "code: Image")
	f.must("apply", "-auto-approve")
	f.must("state", "rm", "pipeops_app.web")
	f.must("import", `pipeops_app.web["shop"]`, "shop/production/web")
	f.must("apply", "-auto-approve")
	f.unchanged()
	f.must("destroy", "-auto-approve")
}
