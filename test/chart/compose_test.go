package chart

import (
	"bufio"
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader" // the loader of `docker compose` itself
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// loadCompose reads the compose file as `docker compose` does: merged with the
// environment, validated against the Compose specification.
func loadCompose(t *testing.T, env map[string]string, profiles ...string) (*types.Project, error) {
	t.Helper()
	dir := filepath.Join(harness.Root(), "deployments", "compose")
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, Environment: env,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}},
	}, loader.WithProfiles(profiles))
}

var composeEnv = map[string]string{"PIPEOPS_HOST": "cp.example.com", "RABBITMQ_PASSWORD": "rabbit-secret"}

func TestCompose_WantsSettings(t *testing.T) {
	for name := range composeEnv {
		env := maps.Clone(composeEnv)
		delete(env, name)
		_, err := loadCompose(t, env)
		require.ErrorContains(t, err, name)
	}
}

// TestCompose_PostgreSQL: one password, in the profile alone, joins the two.
func TestCompose_PostgreSQL(t *testing.T) {
	project, err := loadCompose(t, composeEnv)
	require.NoError(t, err)
	assert.NotContains(t, project.Services, "postgresql")
	assert.Empty(t, *project.Services["controlplane"].Environment["PIPEOPS_DATABASE"])

	env := maps.Clone(composeEnv)
	env["POSTGRES_PASSWORD"] = "postgres-secret"
	project, err = loadCompose(t, env, "postgresql")
	require.NoError(t, err)
	database := project.Services["postgresql"]
	assert.Empty(t, database.Ports, "without TLS it is for the containers' network alone")
	assert.Regexp(t, `^postgres:[0-9]+\.[0-9]+-alpine$`, database.Image)
	assert.Equal(t, "postgres-secret", *database.Environment["POSTGRES_PASSWORD"])
	url := *project.Services["controlplane"].Environment["PIPEOPS_DATABASE"]
	assert.Equal(t, "postgres://pipeops:postgres-secret@postgresql:5432/pipeops?sslmode=disable", url)
	require.NoError(t, store.Postgres{URL: url}.Validate())
}

func TestCompose_Renders(t *testing.T) {
	env := maps.Clone(composeEnv)
	env["POSTGRES_PASSWORD"] = "postgres-secret"
	project, err := loadCompose(t, env, "postgresql")
	require.NoError(t, err)
	for name, service := range project.Services {
		assert.Contains(t, service.SecurityOpt, "no-new-privileges:true", name)
		assert.NotNil(t, service.HealthCheck, name)
		assert.Equal(t, "unless-stopped", service.Restart, name)
	}
	for _, port := range project.Services["rabbitmq"].Ports {
		assert.Equal(t, "127.0.0.1", port.HostIP, "without TLS it is for this machine alone")
	}
	control := project.Services["controlplane"]
	assert.True(t, control.ReadOnly)
	assert.Equal(t, []string{"ALL"}, control.CapDrop)
	assert.Equal(t, "65532:65532", control.User)
	build, err := os.ReadFile(filepath.Join(control.Build.Context, "Dockerfile"))
	require.NoError(t, err)
	assert.Contains(t, string(build), "AS "+control.Build.Target+"\n")
}

// TestCompose_Runs starts the control plane with what the compose file gives it:
// command, environment, configuration file. Its paths are put into a folder of
// the test's, its ports are any that are free; nothing else is changed.
func TestCompose_Runs(t *testing.T) {
	project, err := loadCompose(t, composeEnv)
	require.NoError(t, err)
	control := project.Services["controlplane"]
	dir := t.TempDir()
	program, err := programs.ControlPlane.Build(t.Context())
	require.NoError(t, err)

	env := append(os.Environ(), "PIPEOPS_DATA_DIR="+filepath.Join(dir, "data"))
	for name, value := range control.Environment {
		for _, config := range control.Configs {
			if *value == config.Target {
				file := filepath.Join(dir, config.Source)
				require.NoError(t, os.WriteFile(file, []byte(project.Configs[config.Source].Content), 0o600))
				value = &file
			}
		}
		env = append(env, name+"="+*value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	serve := exec.CommandContext(ctx, program, append(control.Command,
		"--api-listen=127.0.0.1:0", "--tunnel-listen=127.0.0.1:0", "--edge-listen=127.0.0.1:0")...)
	serve.Env = env
	stderr, err := serve.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, serve.Start())
	lines := bufio.NewReader(stderr)
	api := ""
	for api == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, line)
		assert.NotContains(t, line, "rabbit-secret")
		if m := regexp.MustCompile(`API +https://cp\.example\.com:8443 +listens on (\S+)`).FindStringSubmatch(line); m != nil {
			api = m[1]
		}
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		_, _ = io.Copy(io.Discard, lines)
	}()

	run := func(args ...string) string {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = env
		out, err := cmd.Output()
		require.NoError(t, err, "%v", args)
		return string(out)
	}
	health := control.HealthCheck.Test
	require.Equal(t, "/pipeops-controlplane", health[1])
	assert.Regexp(t, `database +ok`, run(append(health[2:], "--url", "https://"+api, "--wait", "1m")...))
	assert.True(t, strings.HasPrefix(run("token", "create"), "pipeops_"))
	assert.Contains(t, run("runner", "create", "ci", "-o", "-"), "amqp://pipeops:rabbit-secret@localhost:5672/")

	require.NoError(t, serve.Process.Signal(syscall.SIGTERM))
	await.Closed(t, rest, "the control plane ends what it says")
	assert.NoError(t, serve.Wait(), "it drains")
}
