package build_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// follower is an agent's parts that follow a repository over SSH into a namespace of Apps.
type follower struct {
	*workshop
	t      *testing.T
	policy *policy.Policy
	engine *app.Engine
	keeper *source.Keeper
	key    runnerapi.Key
	spec   runnerapi.SourceSpec
	stop   func()
}

const (
	shop     = "built-shop"
	building = `rules: [{name: git, commands: ["*", put-source, put-build]}]`
)

// followed is a repository with a Dockerfile and an App without an image.
func (w *workshop) followed(t *testing.T) {
	f := w.follower(t)
	defer func() { f.stop() }()
	first := f.commit("echo one > /greeting")
	f.refusals(t)

	_, err := f.keeper.Set(t.Context(), f.key, f.spec, byTest)
	require.NoError(t, err)
	status := f.await("building", func(s runnerapi.SourceStatus) bool { return s.Phase == runnerapi.SourceBuilding })
	f.stop() // the agent is restarted while it builds, and continues
	f.start()
	b, log := w.await(status.Build.Name)
	assert.Contains(t, log, "commit "+first)
	assert.Equal(t, w.registry+"/shop/web:"+first[:12], b.Status.Tag)
	status = f.settled()
	require.Nil(t, status.Error)
	assert.Equal(t, first, status.Commit)
	assert.Equal(t, b.Status.Image, status.Build.Image)
	f.runs(first, b.Status.Image, "greeting one")

	broken := f.commit("echo about to fail; exit 7")
	status = f.sync()
	require.NotNil(t, status.Error)
	assert.Equal(t, "step_failed", status.Error.Code)
	assert.Contains(t, status.Error.Message, `RUN ["/bin/sh", "-c", "echo about to fail; exit 7"], line 3 of app/Source.Dockerfile`)
	assert.Contains(t, status.Error.Fix, "source logs AGENT web")
	assert.Equal(t, []string{broken, broken, first}, []string{status.Error.Commit, status.Attempted, status.Commit})
	assert.Equal(t, 3, status.Build.Failure.Line)
	f.runs(first, b.Status.Image, "greeting one")

	// What is built of a commit that was overtaken ends when a Runner asks for the newest. The
	// App's spec is in the source now.
	slow := f.commit("echo it-is-slow; sleep 600")
	f.ask()
	f.await("the slow build", func(s runnerapi.SourceStatus) bool {
		return s.Build.Commit == slow && s.Phase == runnerapi.SourceBuilding
	})
	fixed := f.commit("echo three > /greeting")
	f.spec.Path, f.spec.AppSpec = "", appSpec
	_, err = f.keeper.Set(t.Context(), f.key, f.spec, byTest)
	require.NoError(t, err)
	status = f.settled()
	require.Nil(t, status.Error)
	assert.Equal(t, fixed, status.Commit)
	assert.NotEqual(t, b.Status.Image, status.Build.Image)
	assert.Nil(t, status.Build.Failure)
	f.runs(fixed, status.Build.Image, "greeting three")

	// Deleted while no agent runs: the next one finds what was left behind.
	of, err := w.builds.OfSources(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[runnerapi.Key]runnerapi.Key{status.Build.Key(): f.key}, of)
	f.stop()
	require.NoError(t, f.keeper.Delete(t.Context(), f.key, byTest))
	f.start()
	require.Eventually(t, func() bool {
		_, err := w.builds.Get(t.Context(), status.Build.Key())
		return err != nil && strings.Contains(err.Error(), "there is no build")
	}, patience, 100*time.Millisecond, "its builds go with it")
	_, err = f.engine.Get(t.Context(), f.key)
	require.NoError(t, err, "what it brought stays")
	require.NoError(t, f.engine.Delete(t.Context(), f.key, byTest))
	f.pages(t)
}

const appSpec = "imagePullSecrets: [registry]\nterminationGraceSeconds: 1\n"

func (w *workshop) follower(t *testing.T) *follower {
	t.Helper()
	f := &follower{workshop: w, t: t, policy: policy.New("a test"), key: runnerapi.Key{Namespace: shop, Name: "web"}}
	sources, err := deployments.Sources()
	require.NoError(t, err)
	w.env.Apply(t, string(sources))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop, Labels: objectmeta.Labels()}}
	w.create(ns)
	t.Cleanup(func() { assert.NoError(t, w.env.Client.Delete(context.Background(), ns)) })
	_, err = w.env.Cluster.Kubectl(t.Context(), "create", "rolebinding", "pipeops-agent", "-n", shop, "--clusterrole=pipeops-agent-namespace", "--serviceaccount=pipeops:pipeops-agent")
	require.NoError(t, err)

	ssh := w.server.StartSSHAt(t, w.env.Cluster.HostIP())
	key := map[string]string{"url": ssh.URL("shop.git"), "identity": string(ssh.Identity), "known_hosts": string(ssh.KnownHosts)}
	for _, namespace := range []string{shop, builds} {
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deploy-key"}, StringData: key})
	}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson, StringData: w.login()})
	require.NoError(t, w.env.Cluster.TrustRegistry(w.registry, []byte(w.ca.pem)))
	f.spec = runnerapi.SourceSpec{
		URL: ssh.URL("shop.git"), Type: runnerapi.SourceApp, Path: "app/app.yaml", Credentials: "deploy-key", Interval: "24h",
		Build: &runnerapi.SourceBuild{Context: "app", BuildTemplate: runnerapi.BuildTemplate{
			Dockerfile: "Source.Dockerfile", Image: w.registry + "/shop/web", PushCredentials: "registry", CA: &runnerapi.BuildCA{ConfigMap: "ca"},
		}},
	}
	require.Empty(t, f.spec.Validate("web"))
	f.allow(building)
	f.start()
	return f
}

func (f *follower) allow(text string) {
	f.t.Helper()
	doc, err := policy.Parse([]byte(text))
	require.NoError(f.t, err)
	f.policy.Set(doc, nil)
}

// start starts an agent's parts with the rights of the manifests.
func (f *follower) start() {
	f.t.Helper()
	engine, err := app.New(app.Config{RESTConfig: f.env.Agent, Namespace: kubetest.AgentNamespace, Log: zerolog.Nop(), Replica: time.Now().String(),
		Lease: 2 * time.Second, Led: func() { f.keeper.Wake() }})
	require.NoError(f.t, err)
	f.engine = engine
	f.keeper = source.New(f.policy, source.Config{
		Guard: gitserver.Guard,
		REST:  f.env.Agent, Namespace: kubetest.AgentNamespace, Apps: engine, Builds: f.agent(),
		Leads: engine.Leads, Log: zerolog.New(zerolog.NewTestWriter(f.t)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, part := range []func(context.Context) error{engine.Run, f.keeper.Run} {
		all.Go(func() { assert.NoError(f.t, part(ctx)) })
	}
	f.stop = func() { cancel(); all.Wait() }
	require.Eventually(f.t, engine.Ready, patience, 20*time.Millisecond)
}

// commit makes one whose Dockerfile has a step in its third line.
func (f *follower) commit(step string) string {
	f.t.Helper()
	return f.git.Commit(map[string]string{"app/app.yaml": appSpec, "app/Source.Dockerfile": `FROM scratch
COPY bin/busybox /bin/sh
RUN ["/bin/sh", "-c", "` + step + `"]
USER 1000
CMD ["/bin/sh", "-c", "read g < /greeting; echo greeting $g; sleep 3600"]
`})
}

// refusals: without what build-rights.yaml brings, or the policy's word, nothing is put.
func (f *follower) refusals(t *testing.T) {
	elsewhere := f.spec
	inner := *f.spec.Build
	inner.Namespace = "no-builds"
	elsewhere.Build = &inner
	_, err := f.keeper.Set(t.Context(), f.key, elsewhere, byTest)
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Contains(t, known.Fix, "deployments/build-rights.yaml")
	assert.Equal(t, "build.namespace", known.Field)
	inner.Namespace, inner.PushCredentials = "", "nowhere"
	_, err = f.keeper.Set(t.Context(), f.key, elsewhere, byTest)
	require.ErrorContains(t, err, "build.pushCredentials: there is no secret nowhere")
	elsewhere = f.spec
	elsewhere.Path, elsewhere.AppSpec = "", "replica: 2"
	_, err = f.keeper.Set(t.Context(), f.key, elsewhere, byTest)
	require.ErrorContains(t, err, "appSpec")

	f.allow(`rules: [{name: git, commands: ["*", put-source]}]`)
	_, err = f.keeper.Set(t.Context(), f.key, f.spec, byTest)
	require.ErrorContains(t, err, "put-build")
	f.allow(building)
	dry := byTest
	dry.DryRun = true
	_, err = f.keeper.Set(t.Context(), f.key, f.spec, dry)
	require.NoError(t, err)
	list, err := f.builds.List(t.Context(), builds)
	require.NoError(t, err)
	for _, b := range list {
		assert.NotContains(t, b.Name, "git-web", "a dry run builds nothing")
	}
}

func (f *follower) await(what string, is func(runnerapi.SourceStatus) bool) runnerapi.SourceStatus {
	f.t.Helper()
	var last runnerapi.SourceStatus
	if !assert.Eventually(f.t, func() bool {
		s, err := f.keeper.Get(f.t.Context(), f.key)
		last = s.Status
		return err == nil && is(last)
	}, patience, 50*time.Millisecond) {
		require.FailNow(f.t, what, "%+v, build %+v, error %+v", last, last.Build, last.Error)
	}
	return last
}

func (f *follower) settled() runnerapi.SourceStatus {
	f.t.Helper()
	return f.await("settled", func(s runnerapi.SourceStatus) bool { return s.Phase.Settled() || s.Phase.Applied() })
}

func (f *follower) ask() {
	f.t.Helper()
	opts := byTest
	opts.Caller.RequestID = time.Now().Format(time.RFC3339Nano)
	_, err := f.keeper.Sync(f.t.Context(), f.key, opts)
	require.NoError(f.t, err)
}

func (f *follower) sync() runnerapi.SourceStatus {
	f.t.Helper()
	f.ask()
	return f.settled()
}

// runs waits until the App runs an image, by its digest, and its revision says of which commit.
func (f *follower) runs(commit, image, says string) {
	f.t.Helper()
	require.EventuallyWithT(f.t, func(c *assert.CollectT) {
		a, err := f.engine.Get(f.t.Context(), f.key)
		require.NoError(c, err)
		assert.Equal(c, image, a.Spec.Image)
		assert.Equal(c, runnerapi.PhaseHealthy, a.Status.Phase, "%+v", a.Status)
		out, err := f.env.Cluster.Kubectl(f.t.Context(), "-n", shop, "logs", "deploy/web")
		require.NoError(c, err)
		assert.Contains(c, string(out), says)
	}, patience, 200*time.Millisecond)
	revisions, err := f.engine.Revisions(f.t.Context(), f.key)
	require.NoError(f.t, err)
	assert.Equal(f.t, []string{commit, image}, []string{revisions[0].Commit, revisions[0].Image})
}
