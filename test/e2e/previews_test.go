package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// previews are a repository with a forge, both of this machine, and the source web of the agent.
type previews struct {
	*shell
	url   string
	repo  *gitserver.Repository
	forge *forgetest.Server
}

func newPreviews(t *testing.T) *previews {
	t.Helper()
	p := &previews{shell: newShell(t)}
	p.allow(t)
	server := gitserver.Start(t, "", "")
	ssh := server.StartSSHAt(t, sys.HostIP())
	p.url = ssh.URL("shop/deploy.git")
	p.repo = server.Create(t, "shop/deploy.git")
	p.forge = forgetest.StartAt(t, sys.HostIP(), "shop/deploy", "hush")
	for name, text := range map[string][]byte{"deploy-key": ssh.Identity, "known_hosts": ssh.KnownHosts, "forge.crt": p.forge.CA()} {
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), text, 0o600))
	}
	p.run(t, "pipeops-runner secret set shop git-deploy --from-literal url="+ssh.URL("shop/")+" --from-file identity=deploy-key --from-file known_hosts")
	p.run(t, "printf hush | pipeops-runner secret set shop git-status --from-literal url=https://"+sys.HostIP()+"/shop/ --from-literal api="+p.forge.HTTPS.URL+
		" --from-stdin token --from-file ca.crt=forge.crt")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		for _, name := range []string{"git-deploy", "git-status"} {
			_, err := sys.Runner(ctx, runner, "secret", "delete", agentName, name)
			assert.NoError(t, err)
		}
	})
	return p
}

// set follows the repository with previews. It deletes the source at the end of the test.
func (p *previews) set(t *testing.T, flags string) {
	t.Helper()
	p.run(t, "pipeops-runner source set shop web --url "+p.url+" --secret git-deploy --report github --report-credentials git-status --report-api "+
		p.forge.HTTPS.URL+forgetest.GitHub+" --interval 30s --previews --wait=2m "+flags)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Runner(ctx, runner, "source", "delete", agentName, "web")
		assert.NoError(t, err)
	})
}

// list returns the previews, after a look at the forge.
func (p *previews) list(t *testing.T) (all []runnerapi.SourcePreview) {
	t.Helper()
	var list runnerapi.SourcePreviewList
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "source", "previews", "list", agentName, "web", "-o", "json")), &list))
	assert.Nil(t, list.Error)
	return list.Items
}

// until looks at the forge, and waits until the previews are as they are to be.
func (p *previews) until(t *testing.T, what string, good func([]runnerapi.SourcePreview) bool) (all []runnerapi.SourcePreview) {
	t.Helper()
	pipeops(t, "source", "sync", agentName, "web")
	await.Until(t, what, func() bool {
		all = p.list(t)
		return good(all)
	})
	return all
}

// TestPreviews_Public opens requests whose Apps are public, a fork's among them, with the policy's
// word.
func TestPreviews_Public(t *testing.T) {
	suite.Release(t, "previews of pull requests at public addresses")
	removeApp(t, "web")
	p := newPreviews(t)
	app := func(greeting string) map[string]string {
		return map[string]string{"app.yaml": "image: " + image + "\nports: [{name: http, port: 8080}]\nenv: [{name: GREETING, value: " + greeting + "}]\n" +
			"ingress: {hosts: [{host: shop.example.com}]}\n"}
	}
	p.repo.Commit(app("main"))
	p.set(t, "--type app --path app.yaml --preview-comment")
	commit := p.repo.Branch("shiny", app("shiny"))
	p.forge.Open(forgetest.Pull{Number: 12, Branch: "shiny", Commit: commit})
	fork := p.repo.Branch("patch-1", app("theirs"))
	p.forge.Open(forgetest.Pull{Number: 13, Branch: "patch-1", Commit: fork, Fork: true})
	all := p.until(t, "the preview is ready", func(all []runnerapi.SourcePreview) bool {
		return len(all) == 2 && all[1].Phase == runnerapi.SourceReady && all[1].URL != ""
	})
	assert.Equal(t, runnerapi.PreviewNeedsApproval, all[0].State)
	assert.NotContains(t, all[1].URL, "shop.example.com", "that is the real App's")

	assert.True(t, slices.ContainsFunc(p.forge.Sent(), func(s forgetest.Sent) bool {
		return s.Commit == commit && s.State == "pending" && strings.Contains(s.URL, "/console/agents/") &&
			strings.HasSuffix(s.URL, "/app?app=web&namespace="+all[1].Namespace)
	}), "the state links to the console's page about the App")

	visitor, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	began := time.Now()
	await.Until(t, all[1].URL+" answers", func() bool { return strings.Contains(get(t, visitor, all[1].URL), "shiny") })
	t.Logf("the preview's address answered %s after its App was ready", time.Since(began).Round(time.Millisecond))
	await.Until(t, "the request has a comment", func() bool {
		comments := p.forge.Comments()
		return len(comments) == 1 && comments[0] == forgetest.Comment{Number: 12, Text: "Preview of " + commit + ": " + all[1].URL}
	})

	pipeops(t, "source", "previews", "approve", agentName, "web", "13", "--commit", fork)
	all = p.until(t, "the fork's preview is ready", func(all []runnerapi.SourcePreview) bool {
		return all[0].Phase == runnerapi.SourceReady && all[0].URL != ""
	})
	await.Until(t, all[0].URL+" answers", func() bool { return strings.Contains(get(t, visitor, all[0].URL), "theirs") })
	p.forge.Close()
	p.until(t, "they are closed", func(all []runnerapi.SourcePreview) bool { return len(all) == 0 })
}

// get returns the body of a page; empty if there is none.
func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := c.Do(r)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

// TestPreviews_LeaveNothing opens and closes a hundred requests.
func TestPreviews_LeaveNothing(t *testing.T) {
	suite.Release(t, "a hundred requests, opened and closed")
	p := newPreviews(t)
	object := func(value int) map[string]string {
		return map[string]string{"one.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: preview}\ndata: {value: \"%d\"}\n", value)}
	}
	p.repo.Commit(object(0))
	p.set(t, "--type manifests --preview-limit 50 --prune")
	before := everything(t)
	for _, first := range []int64{1, 51} {
		for number := first; number < first+50; number++ {
			branch := fmt.Sprintf("branch-%d", number)
			p.forge.Open(forgetest.Pull{Number: number, Branch: branch, Commit: p.repo.Branch(branch, object(int(number)))})
		}
		p.until(t, "each has a preview", func(all []runnerapi.SourcePreview) bool {
			return len(all) == 50 && !slices.ContainsFunc(all, func(p runnerapi.SourcePreview) bool { return p.Phase != runnerapi.SourceReady })
		})
		p.forge.Close()
		p.until(t, "they are closed", func(all []runnerapi.SourcePreview) bool { return len(all) == 0 })
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, slices.DeleteFunc(everything(t), func(name string) bool { return slices.Contains(before, name) }))
	}, 3*time.Minute, time.Second)
}

// everything returns the names of all objects in the cluster, but those that come and go by
// themselves, and the agent's audit log.
func everything(t *testing.T) (names []string) {
	t.Helper()
	kinds, err := sys.Cluster.Kubectl(t.Context(), "api-resources", "--verbs=list", "-o", "name")
	require.NoError(t, err)
	asked := slices.DeleteFunc(strings.Fields(string(kinds)), func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.Contains(kind, "metrics.k8s.io") || strings.HasPrefix(kind, "leases.")
	})
	out, err := sys.Cluster.Kubectl(t.Context(), "get", strings.Join(asked, ","), "-A", "--ignore-not-found",
		"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	require.NoError(t, err)
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return strings.HasPrefix(name, "ControllerRevision/pipeops/") })
}
