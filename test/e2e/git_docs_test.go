package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestDocs_GitAndBuilds runs what docs/deployer/git.md and builds.md have run, with a Git
// server of this machine behind SSH. There is no builder here, which is what a build meets
// once it is let in; internal/build builds.
func TestDocs_GitAndBuilds(t *testing.T) {
	suite.Release(t, "the documents' commands, each as it is written")
	removeApp(t, "web")
	s := newShell(t)
	s.allow(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", filepath.Join(harness.Root(), "deployments", "build-rights.yaml"))
		assert.NoError(t, err)
	})
	require.NoError(t, os.Symlink(filepath.Join(harness.Root(), "deployments"), filepath.Join(s.dir, "deployments")))
	server := gitserver.Start(t, "", "")
	ssh := server.StartSSHAt(t, sys.HostIP())
	server.Create(t, "shop/deploy.git").Commit(map[string]string{"web/app.yaml": "image: " + harness.ExampleImage + "\n"})
	for name, text := range map[string][]byte{"deploy-key": ssh.Identity, "known_hosts": ssh.KnownHosts} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), text, 0o600))
	}
	here := strings.NewReplacer("ssh://git@git.example.com/", ssh.URL(""))

	for _, page := range []string{"docs/deployer/git.md", "docs/deployer/builds.md"} {
		blocks, err := harness.Shell(page)
		require.NoError(t, err)
		for _, block := range blocks {
			t.Log(s.run(t, here.Replace(block)))
		}
	}
	pipeops(t, "secret", "delete", agentName, "git-deploy")
	revisions := pipeops(t, "revisions", agentName, "web", "-o", "json")
	assert.Contains(t, revisions, `"commit"`)
	s.fails(t, "pipeops-runner build run shop web -n pipeops-builds --git https://git.example.com/shop/web.git --image registry.example.com/shop/web",
		"the agent has no builder")
}
