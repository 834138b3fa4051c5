package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/gitea"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestGitea follows a repository of the real Gitea, which sends events of pushes and pull requests,
// and shows the states of their commits. Without events, the agent looks once a day.
func TestGitea(t *testing.T) {
	suite.Release(t, "pushes, states of commits and previews with a real Gitea")
	removeApp(t, "web")
	s := newShell(t)
	s.allow(t)
	creds, err := credentials.Load(sys.RunnerCredentials(runner))
	require.NoError(t, err)
	trusts := filepath.Join(s.dir, "control-plane.crt")
	require.NoError(t, os.WriteFile(trusts, []byte(creds.CA), 0o600))
	server := gitea.Start(t, sys.HostIP(), trusts)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "gitea.crt"), server.CA, 0o600))
	repo := server.Create("deploy")
	app := func(greeting string) string {
		return "image: " + image + "\nports: [{name: http, port: 8080}]\nenv: [{name: GREETING, value: " + greeting + "}]\ningress: {public: true}\n"
	}
	first := repo.Commit("main", "app.yaml", app("first"))

	at := server.URL + "/" + gitea.Owner + "/"
	token := "printf %s " + server.Token + " | pipeops-runner secret set shop "
	s.run(t, token+"git-deploy --from-literal url="+at+" --from-literal username="+gitea.Owner+" --from-stdin password --from-file ca.crt=gitea.crt")
	s.run(t, token+"git-status --from-literal url="+at+" --from-stdin token --from-file ca.crt=gitea.crt")
	s.run(t, "pipeops-runner source set shop web --url "+repo.URL+" --secret git-deploy --type app --path app.yaml --interval 24h "+
		"--report gitea --report-credentials git-status --previews --preview-comment --webhook --wait=2m")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		for _, what := range [][]string{{"source", "delete", agentName, "web"}, {"secret", "delete", agentName, "git-deploy"}, {"secret", "delete", agentName, "git-status"}} {
			_, err := sys.Runner(ctx, runner, what...)
			assert.NoError(t, err)
		}
	})
	shows := func(commit, state string) {
		t.Helper()
		await.Until(t, "Gitea shows that commit "+commit+" is "+state, func() bool {
			return slices.ContainsFunc(repo.Statuses(commit), func(s gitea.Status) bool { return s.State == state && s.URL != "" })
		})
	}
	shows(first, "success")
	var hook announce.SourceWebhook
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "source", "webhook", "set", agentName, "web", "-o", "json")), &hook))
	repo.AddWebhook(hook.URL, hook.Secret)

	shows(repo.Commit("main", "app.yaml", app("second")), "success")
	bad := repo.Commit("main", "app.yaml", "image: nothing.example.com/web:1\nports: [{port: http}]\n")
	shows(bad, "failure")
	assert.Contains(t, repo.Statuses(bad)[0].Description, "port")

	commit := repo.Commit("shiny", "app.yaml", app("shiny"))
	number := repo.Open("shiny")
	var url string
	await.Until(t, "the pull request has a preview", func() bool {
		var list runnerapi.SourcePreviewList
		require.NoError(t, json.Unmarshal([]byte(pipeops(t, "source", "previews", "list", agentName, "web", "-o", "json")), &list))
		if len(list.Items) == 1 && list.Items[0].Number == number {
			url = list.Items[0].URL
		}
		return url != ""
	})
	visitor, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	await.Until(t, url+" answers", func() bool { return strings.Contains(get(t, visitor, url), "shiny") })
	await.Until(t, "the pull request has a comment", func() bool {
		return slices.Equal(repo.Comments(number), []string{"Preview of " + commit + ": " + url})
	})
	shows(commit, "success")
	repo.Close(number)
	await.Until(t, "the preview is gone", func() bool {
		return strings.Contains(pipeops(t, "source", "previews", "list", agentName, "web", "-o", "json"), `"items": []`)
	})
}
