package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
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
	repo := server.Create(t, "shop/deploy.git")
	repo.Config("uploadpack.allowReachableSHA1InWant", "true") // SSH gives the newest commits alone otherwise
	repo.Commit(map[string]string{"web/app.yaml": "image: " + harness.ExampleImage + "\n"})
	for name, text := range map[string][]byte{"deploy-key": ssh.Identity, "known_hosts": ssh.KnownHosts} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), text, 0o600))
	}
	here := strings.NewReplacer("ssh://git@git.example.com/", ssh.URL(""))
	first := pushIsApplied(t, s, ssh.URL("shop/deploy.git"), func() string {
		return repo.Commit(map[string]string{"web/app.yaml": "image: " + harness.ExampleImage + "\nenv: [{name: A, value: pushed}]\n"})
	})

	for _, page := range []string{"docs/deployer/git.md", "docs/deployer/builds.md"} {
		blocks, err := harness.Shell(page)
		require.NoError(t, err)
		for _, block := range blocks {
			t.Log(s.run(t, here.Replace(block)))
		}
	}
	put := []string{"source", "set", agentName, "web", "--url", ssh.URL("shop/deploy.git"), "--secret", "git-deploy", "--type", "app", "--path", "web/app.yaml", "--wait=2m"}
	pipeops(t, put...)
	repo.Commit(map[string]string{"web/app.yaml": "replicas: 2\nimage: " + harness.ExampleImage + "\n"})
	pipeops(t, "source", "sync", agentName, "web", "--wait=2m")
	examples, err := harness.CommandLine("source rollback")
	require.NoError(t, err)
	for _, line := range examples {
		t.Log(s.run(t, strings.Replace(line, "0a1b2c3d4e5f", first, 1)))
	}
	assert.Contains(t, pipeops(t, "source", "get", agentName, "web"), "at "+first[:12])
	pipeops(t, "source", "delete", agentName, "web")
	pipeops(t, "secret", "delete", agentName, "git-deploy")
	revisions := pipeops(t, "revisions", agentName, "web", "-o", "json")
	assert.Contains(t, revisions, `"commit"`)
	s.fails(t, "pipeops-runner build run shop web -n pipeops-builds --git https://git.example.com/shop/web.git --image registry.example.com/shop/web",
		"the agent has no builder")
}

// pushIsApplied has a source that is looked at once a day, and its Git server tell of a push, whose
// commit it returns.
func pushIsApplied(t *testing.T, s *shell, url string, push func() string) (commit string) {
	t.Helper()
	s.run(t, "pipeops-runner secret set shop git-deploy --from-literal url="+url+" --from-file identity=deploy-key --from-file known_hosts")
	s.run(t, "pipeops-runner source set shop web --url "+url+" --secret git-deploy --type app --path web/app.yaml --interval 24h --webhook --wait=2m")
	var hook announce.SourceWebhook
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "source", "webhook", "set", agentName, "web", "-o", "json")), &hook))
	creds, err := credentials.Load(sys.RunnerCredentials(runner))
	require.NoError(t, err)
	roots, err := creds.Roots()
	require.NoError(t, err)
	client := harness.VisitorAt(sys.HostIP(), roots)

	commit = push()
	began := time.Now()
	body := `{"ref":"refs/heads/main","after":"` + commit + `"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hook.URL, strings.NewReader(body))
	require.NoError(t, err)
	mac := hmac.New(sha256.New, []byte(hook.Secret))
	mac.Write([]byte(body))
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	await.Until(t, "the push is applied", func() bool {
		return strings.Contains(pipeops(t, "source", "get", agentName, "web", "-o", "json"), `"commit": "`+commit)
	})
	t.Logf("a push was applied after %s", time.Since(began).Round(time.Millisecond))
	s.run(t, "pipeops-runner source delete shop web")
	refused(t, 4, "source", "webhook", "get", agentName, "web")
	return commit
}
