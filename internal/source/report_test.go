package source_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

// reporting is a place whose source reports to a forge, by a clock of its own.
type reporting struct {
	*place
	clock *clocktesting.FakeClock
	repo  *gitserver.Repository
	forge *forgetest.Server
}

func openReporting(t *testing.T) *reporting {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	r := &reporting{place: open(t, clock), clock: clock, forge: forgetest.Start(t, "shop/deploy", "hush")}
	r.secret("correct horse")
	r.repo = r.git.Create(t, "shop/deploy.git")
	r.token("hush")
	return r
}

// token stores the token that the agent sends.
func (r *reporting) token(token string) {
	r.t.Helper()
	data := r.forge.Secret(r.t, r.git.HTTPS.URL+"/shop/")
	data["token"] = []byte(token)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "git-status"}, Data: data}
	err := r.env.Client.Create(r.t.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		err = r.env.Client.Update(r.t.Context(), s)
	}
	require.NoError(r.t, err)
}

func (r *reporting) spec(spec runnerapi.SourceSpec) runnerapi.SourceSpec {
	spec.Interval = runnerapi.MinSourceInterval.String()
	spec.Report = &runnerapi.SourceReport{
		Forge: runnerapi.GitHub, Credentials: "git-status", API: r.forge.HTTPS.URL + forgetest.GitHub,
		Environment: "production", EnvironmentURL: "https://shop.example.com",
	}
	return spec
}

// shows waits until the forge has the states of a commit. It moves the clock.
func (r *reporting) shows(commit string, states ...string) {
	r.t.Helper()
	await.Until(r.t, "the forge shows "+strings.Join(states, ", "), func() bool {
		r.clock.Step(time.Second)
		return assert.ObjectsAreEqual(states, r.forge.States(commit))
	})
}

func (r *reporting) last() forgetest.Sent {
	sent := r.forge.Sent()
	return sent[len(sent)-1]
}

// reported waits until the source's status has such a report. It moves the clock.
func (r *reporting) reported(name string, good func(runnerapi.SourceReportStatus) bool) (report runnerapi.SourceReportStatus) {
	r.t.Helper()
	await.Until(r.t, "the status of source "+name+" has the report", func() bool {
		r.clock.Step(time.Second)
		s, err := r.keeper.Get(r.t.Context(), r.key(name))
		require.NoError(r.t, err)
		if s.Status.Report != nil {
			report = *s.Status.Report
		}
		return good(report)
	})
	return report
}

// TestReport_FollowsSource deploys a commit, has another one refused, and deploys one whose App is
// paused: nothing runs pods here.
func TestReport_FollowsSource(t *testing.T) {
	t.Parallel()
	r := openReporting(t)
	page := func(app runnerapi.Key) string { return "https://console.example.com/" + app.String() }
	r.keeper.SetPages(page)
	first := r.repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:1\n"})
	r.put("web", r.spec(runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml"}))
	r.shows(first, "pending")
	assert.Equal(t, "pipeops/"+r.config.Agent+"/"+r.key("web").String(), r.last().Context)

	bad := r.repo.Commit(map[string]string{"app.yaml": "image: evil.example.com/web:2\n"})
	r.sync("web")
	r.shows(bad, "failure")
	assert.Contains(t, r.last().Description, "evil.example.com")
	assert.Equal(t, page(r.key("web")), r.last().URL, "the cause is there")
	r.shows(first, "pending", "error")
	assert.Contains(t, r.forge.Sent()[3].Description, "superseded by commit "+bad[:12])

	good := r.repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:3\npaused: true\n"})
	r.sync("web")
	report := r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.State == runnerapi.ReportSuccess })
	assert.Contains(t, r.last().Description, "ready: revision")
	assert.Equal(t, "https://shop.example.com", r.last().URL)
	assert.True(t, slices.ContainsFunc(r.forge.Sent(), func(s forgetest.Sent) bool {
		return s.Deployment == 3 && s.URL == "https://shop.example.com" && s.Log == page(r.key("web"))
	}))
	assert.Equal(t, []string{first, bad, good}, r.forge.Deployments())
	assert.Equal(t, good, report.Commit)
	assert.NotEmpty(t, report.SucceededAt)
	assert.Nil(t, report.Error)
	assert.EqualValues(t, 3, report.Deployment.ID)
	require.NoError(t, r.keeper.Delete(t.Context(), r.key("web"), runner))
}

// TestReport_DegradedAndRecovered changes the cluster after a success, within ten minutes and
// later.
func TestReport_DegradedAndRecovered(t *testing.T) {
	t.Parallel()
	r := openReporting(t)
	commit := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	r.put("web", r.spec(runnerapi.SourceSpec{Type: runnerapi.SourceManifests}))
	r.shows(commit, "success")
	remove := func() {
		cm, err := r.configMap("one")
		require.NoError(t, err)
		require.NoError(t, r.env.Client.Delete(t.Context(), cm))
	}
	remove()
	r.shows(commit, "success", "failure")
	assert.Contains(t, r.last().Description, "one was applied and is no longer there")
	r.sync("web")
	r.shows(commit, "success", "failure", "success")

	r.clock.Step(10 * time.Minute)
	remove()
	await.Until(t, "the source is degraded", func() bool {
		r.clock.Step(time.Second)
		s, err := r.keeper.Get(t.Context(), r.key("web"))
		require.NoError(t, err)
		return s.Status.Phase == runnerapi.SourceDegraded
	})
	r.clock.Step(time.Minute)
	assert.Len(t, r.forge.States(commit), 3, "what happens later is not the commit's doing")
	require.NoError(t, r.keeper.Delete(t.Context(), r.key("web"), runner))
}

// TestReport_ForgeAway: the forge neither delays a commit nor misses its state.
func TestReport_ForgeAway(t *testing.T) {
	t.Parallel()
	r := openReporting(t)
	r.forge.GoAway(true)
	first := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	r.put("web", r.spec(runnerapi.SourceSpec{Type: runnerapi.SourceManifests}))
	assert.Equal(t, first, r.settled("web").Commit)
	report := r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error != nil })
	assert.Equal(t, "unreachable", report.Error.Code)
	assert.Equal(t, first, report.Error.Commit)
	assert.NotEmpty(t, report.RetryAt)
	second := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "second")})
	assert.Equal(t, second, r.sync("web").Commit)
	r.forge.GoAway(false)
	r.shows(second, "success")
	assert.Empty(t, r.forge.States(first), "only the newest state is sent")
	r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error == nil && s.Commit == second })

	r.forge.Pause(600)
	third := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "third")})
	assert.Equal(t, third, r.sync("web").Commit)
	report = r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error != nil })
	assert.Equal(t, string(problem.TooManyRequests), report.Error.Code)
	before := r.forge.Requests()
	r.forge.Pause(0)
	r.sync("web")
	r.clock.Step(5 * time.Minute)
	assert.Equal(t, before, r.forge.Requests(), "the pause that the forge asked for holds")
	r.shows(third, "success")
	require.NoError(t, r.keeper.Delete(t.Context(), r.key("web"), runner))
}

func TestReport_TokenWrong(t *testing.T) {
	t.Parallel()
	r := openReporting(t)
	r.token("mistyped")
	commit := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	spec := r.spec(runnerapi.SourceSpec{Type: runnerapi.SourceManifests})
	r.put("web", spec)
	report := r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error != nil })
	assert.Equal(t, "credentials_refused", report.Error.Code)
	assert.Contains(t, report.Error.Message, "refuses the token of Secret git-status")
	assert.NotContains(t, report.Error.Message, "mistyped")
	assert.NotEmpty(t, report.Error.Fix)
	r.token("hush")
	r.sync("web")
	r.shows(commit, "success")
	r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error == nil })

	// Another server does not get the token, though the Runner names it.
	thief := forgetest.Start(t, "shop/deploy", "hush")
	spec.Report.API = thief.HTTPS.URL + forgetest.GitHub
	r.put("web", spec)
	report = r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Error != nil })
	assert.Equal(t, "credentials_invalid", report.Error.Code)
	assert.Zero(t, thief.Requests())
	opts := runner
	opts.DryRun = true
	spec.URL, spec.Credentials = r.git.URL("shop/deploy.git"), "git-deploy"
	_, err := r.keeper.Set(t.Context(), r.key("web"), spec, opts)
	require.ErrorContains(t, err, "is not for the API at")

	r.allow(allowing + "fetchHosts: ['*.example.com']\n")
	spec.URL = "https://git.example.com/shop/deploy.git"
	_, err = r.keeper.Set(t.Context(), r.key("web"), spec, runner)
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, "host_forbidden", string(known.Code))
	assert.Equal(t, "report.api", known.Field)
	require.NoError(t, r.keeper.Delete(t.Context(), r.key("web"), runner))
}

// TestReport_RestartSendsNothingTwice has another replica take over.
func TestReport_RestartSendsNothingTwice(t *testing.T) {
	t.Parallel()
	r := openReporting(t)
	first := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	r.put("web", r.spec(runnerapi.SourceSpec{Type: runnerapi.SourceManifests}))
	r.shows(first, "success")
	r.reported("web", func(s runnerapi.SourceReportStatus) bool { return s.Commit == first })
	before := r.forge.Requests()
	r.restart()
	second := r.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "second")})
	r.sync("web")
	r.shows(second, "success")
	assert.Equal(t, []string{"success"}, r.forge.States(first))
	assert.Equal(t, before+3, r.forge.Requests(), "a deployment, its state and the commit's")
	require.NoError(t, r.keeper.Delete(t.Context(), r.key("web"), runner))
}
