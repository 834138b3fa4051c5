package apppage_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// render returns a page of the kit for a session with some rights.
func render(t *testing.T, template string, data any, rights ...string) string {
	t.Helper()
	may := func(context.Context) func(string) bool {
		return func(right string) bool { return strings.Contains(strings.Join(rights, " "), right) }
	}
	pages, err := web.NewPages(web.Pages{May: may}, fstest.MapFS{
		"templates/page.html": {Data: []byte(`{{define "content"}}{{template "` + template + `" .}}{{end}}{{define "live"}}{{template "app" .}}{{end}}`)},
	})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	pages.Render(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), http.StatusOK, "page", web.Page{Data: data})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// failing is an App with something to say in each part of its page.
func failing() apppage.Data {
	a := runnerapi.App{Namespace: "shop", Name: "web", Spec: runnerapi.AppSpec{Image: "registry.example.com/shop/web:2"}}
	a.Status = runnerapi.AppStatus{
		Phase: runnerapi.PhaseFailed, Revision: 2, PublicURLs: []string{"https://web.example.com/"},
		Diagnosis: &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop, Message: "the container ends", Fix: "see its last lines"},
	}
	return apppage.Data{
		App: a, Up: web.Link{Path: "/up", Text: "Up"}, Log: "/log", Runner: "ci",
		Rollback: web.Link{Path: "/rollback?revision=", Text: "Roll back", Needs: "rollback"}, Actions: []web.Link{{Path: "/restart", Text: "Restart", Needs: "restart"}},
		Revisions: []runnerapi.Revision{{Revision: 2, Current: true}, {Revision: 1, Image: "registry.example.com/shop/web:1"}},
	}
}

func TestApp_StateFirst(t *testing.T) {
	text := render(t, "app-page", failing())
	at := -1
	for _, part := range []string{"<h1>web</h1>", "https://web.example.com/", "CrashLoop", "see its last lines", "<dt>Namespace</dt>", "Runner ci", "<h2>Revisions</h2>"} {
		next := strings.Index(text, part)
		assert.Greater(t, next, at, part)
		at = next
	}
	assert.NotContains(t, text, "<h2>Pods</h2>", "the site does not read the cluster")
}

func TestApp_OffersWhatIsAllowed(t *testing.T) {
	assert.NotContains(t, render(t, "app-page", failing()), "/restart")
	assert.NotContains(t, render(t, "app-page", failing()), "Roll back")
	text := render(t, "app-page", failing(), "restart", "rollback")
	assert.Contains(t, text, `href="/restart"`)
	assert.Contains(t, text, `href="/rollback?revision=1"`)
	assert.NotContains(t, text, `revision=2"`, "the App has that one")
}

func TestApp_Schedule(t *testing.T) {
	shown, code, now := failing(), int32(3), time.Now()
	shown.Spec.Type, shown.Spec.Schedule = runnerapi.TypeCronJob, &runnerapi.Schedule{Cron: "15 3 * * *", TimeZone: "Europe/Berlin"}
	shown.Status.Runs = []runnerapi.Run{
		{Name: "web-29", Outcome: runnerapi.RunRunning, StartedAt: now},
		{Name: "web-28", Outcome: runnerapi.RunFailed, StartedAt: now.Add(-26 * time.Hour), FinishedAt: new(now.Add(-25 * time.Hour)), Tries: 4, ExitCode: &code},
	}
	text := render(t, "app-page", shown)
	assert.Contains(t, text, "<code>15 3 * * *</code>, Europe/Berlin")
	assert.Regexp(t, `<dt>Next run</dt><dd>in \d+[mh].* <span class="muted">\(\d{4}-\d\d-\d\d 0[12]:15:00 UTC\)`, text)
	assert.Regexp(t, `web-29</td><td>.*Running.*</td><td class="time">.* ago</td><td class="time"></td>`, text)
	assert.Regexp(t, `web-28</td><td>.*Failed.*25h ago</td><td class="number">4</td><td class="number">3</td>`, text)

	shown.Spec.Schedule.Suspended = true
	assert.Regexp(t, "<dt>Next run</dt><dd>.*suspended", render(t, "app-page", shown))
	assert.NotContains(t, render(t, "app-page", failing()), "Next run")
}

func TestApp_Source(t *testing.T) {
	assert.NotContains(t, render(t, "app-page", failing()), "Git source")
	shown := failing()
	other := runnerapi.Source{Name: "web", Spec: runnerapi.SourceSpec{Type: runnerapi.SourceHelm}}
	own := runnerapi.Source{Name: "repository", Spec: runnerapi.SourceSpec{Type: runnerapi.SourceApp, App: "web", URL: "https://git.example.com/shop/deploy.git"}}
	own.Status = runnerapi.SourceStatus{
		Phase: runnerapi.SourceFailed, Commit: "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", AppliedAt: time.Now().Add(-time.Hour).Format(time.RFC3339),
		Error: &runnerapi.SourceError{Code: "ref_not_found", Message: "the branch is gone", Fix: "name another branch"},
		Previews: &runnerapi.SourcePreviewsStatus{Items: []runnerapi.SourcePreview{
			{Number: 7, Branch: "old", State: runnerapi.PreviewFailed, Error: &runnerapi.SourceError{Message: "the file is missing"}},
			{Number: 12, Branch: "<new>", State: runnerapi.PreviewActive, Namespace: "shop-web-12"},
		}},
	}
	assert.Nil(t, runnerapi.SourceOf("api", []runnerapi.Source{other, own}))
	shown.Source = apppage.NewSource(runnerapi.SourceOf("web", []runnerapi.Source{other, own}))
	text := render(t, "app-page", shown)
	assert.Contains(t, text, "https://git.example.com/shop/deploy.git")
	assert.Regexp(t, `<span class="mono">0a1b2c3d4e5f</span> <span class="muted">applied .*ago`, text)
	assert.Contains(t, text, "The branch is gone")
	assert.Regexp(t, `(?s)12</td><td class="name">&lt;new&gt;</td>.*shop-web-12.*7</td><td class="name">old</td>.*The file is missing`, text)
}

// TestApp_Changes has values where the agent passes them on.
func TestApp_Changes(t *testing.T) {
	shown := failing()
	shown.Revisions = []runnerapi.Revision{
		{Revision: 3, Changes: []runnerapi.Change{
			{Field: "image", Kind: "changed", From: "web:1", To: "web:<2>"}, {Field: "env[KEY]", Kind: "added"}, {Field: "schedule.cron", Kind: "removed", From: "@daily"},
		}},
		{Revision: 2, Restores: 1},
	}
	text := render(t, "app-page", shown)
	assert.Contains(t, text, "<summary>image, env[KEY], schedule.cron</summary>")
	assert.Contains(t, text, "<dt>image</dt><dd><del>web:1</del> → <ins>web:&lt;2&gt;</ins></dd>")
	assert.Contains(t, text, `<dt>env[KEY]</dt><dd><span class="muted">added; the value is not shown</span></dd>`)
	assert.Contains(t, text, "<dd>removed: <del>@daily</del></dd>")
	assert.Contains(t, text, "went back to 1")
}
