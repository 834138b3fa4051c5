package source_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	render.Child()
	os.Exit(kubetest.Main(m))
}

var runner = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "ci", RequestID: "request-1"}}

// place is a namespace with a Git server and an agent's parts that follow repositories.
type place struct {
	t         *testing.T
	env       *kubetest.Env
	namespace string
	git       *gitserver.Server
	keeper    *source.Keeper
	config    source.Config // the keeper's
	engine    *app.Engine
	policy    *policy.Policy
	audited   *audited
	leads     *atomic.Bool
	idle      atomic.Int64 // looks that were skipped, because this replica did not lead
	clock     []clock.WithTicker
	stop      func() // ends the keeper
}

type audited struct {
	sync.Mutex
	records []runnerapi.AuditRecord
}

func (a *audited) record(r runnerapi.AuditRecord) {
	a.Lock()
	defer a.Unlock()
	a.records = append(a.records, r)
}

func (a *audited) all() []runnerapi.AuditRecord {
	a.Lock()
	defer a.Unlock()
	return append([]runnerapi.AuditRecord{}, a.records...)
}

// sets is the adapter that the agent has, in small.
type sets struct{ applier *manifests.Applier }

func (sets) Read(r io.Reader) ([]*unstructured.Unstructured, func(*unstructured.Unstructured) string, error) {
	docs, err := manifests.Read(r)
	return docs.Objects, docs.Where, err
}

func (s sets) Get(ctx context.Context, key runnerapi.Key) (runnerapi.ManifestSet, error) {
	return s.applier.Get(ctx, manifests.Set{Namespace: key.Namespace, Name: "git-" + key.Name})
}

func (s sets) Apply(ctx context.Context, set source.Set) error {
	result, err := s.applier.Apply(ctx, manifests.Set{Namespace: set.Namespace, Name: "git-" + set.Name}, set.Objects, manifests.Options{
		DryRun: set.DryRun, Prune: set.Prune, Force: set.Force, Where: set.Where, Unread: set.Unread, Admit: set.Admit, By: set.By,
	})
	if err == nil && result.Failed > 0 {
		err = errors.New("objects failed")
	}
	return err
}

const allowing = `
rules:
  - name: git
    commands: ["*", put-source, apply-manifests]
    kinds: [ConfigMap]
    images: [registry.example.com]
    maxReplicas: 3
`

// open is a place whose agent follows repositories by the machine's clock, or by another one.
func open(t *testing.T, by ...clock.WithTicker) *place {
	t.Helper()
	return openIn(t, kubetest.ControlPlane(t), by...)
}

// openRepository is open with a repository that its sources may read.
func openRepository(t *testing.T) (*place, *gitserver.Repository) {
	t.Helper()
	p := open(t)
	p.secret("correct horse")
	return p, p.git.Create(t, "shop/deploy.git")
}

func openIn(t *testing.T, env *kubetest.Env, by ...clock.WithTicker) *place {
	t.Helper()
	return openWith(t, env, nil, by...)
}

// openWith is a place where images are built.
func openWith(t *testing.T, env *kubetest.Env, builds source.Builds, by ...clock.WithTicker) *place {
	t.Helper()
	return openFor(t, env, builds, 0, by...)
}

// openFor is a place whose agent also sees the namespaces of that many previews of a source web.
func openFor(t *testing.T, env *kubetest.Env, builds source.Builds, more int64, by ...clock.WithTicker) *place {
	t.Helper()
	namespace := env.Namespace(t)
	p := &place{t: t, env: env, namespace: namespace, git: gitserver.Start(t, "reader", "correct horse"), audited: &audited{}, leads: &atomic.Bool{}}
	agent, only := kubetest.AgentOf(namespace), []string{namespace}
	for number := int64(1); number <= more; number++ {
		only = append(only, runnerapi.PreviewNamespace(runnerapi.Key{Namespace: namespace, Name: "web"}, number))
	}
	turnOn(t, env)
	p.policy = policy.New("a test")
	p.allow(allowing)
	settling := app.StabilizationFor(time.Second)
	engine, err := app.New(app.Config{
		RESTConfig: env.Agent, Namespace: agent, Namespaces: only, Log: zerolog.Nop(), Stabilization: &settling,
	})
	require.NoError(t, err)
	p.engine = engine
	command, err := render.Command()
	require.NoError(t, err)
	p.config = source.Config{
		Guard: egress.Guard{Allowed: gitserver.Guard.Allowed, Hosts: p.policy.FetchHosts},
		REST:  env.Agent, Agent: "edge-7", Namespace: agent, Namespaces: only, Apps: engine, Audit: p.audited.record,
		Manifests: sets{manifests.New(manifests.Config{
			REST: env.Agent, Namespace: agent, Namespaces: only, Workloads: workloadhealth.New(env.Agent, settling),
		})},
		Builds: builds, Leads: p.led, Render: command, Log: zerolog.New(zerolog.NewTestWriter(t)),
	}
	p.clock = by
	p.start()
	await.Background(t, "the engine", engine.Run)
	require.Eventually(t, engine.Ready, patience, 20*time.Millisecond)
	p.leads.Store(true)
	return p
}

// start starts a keeper.
func (p *place) start() {
	p.keeper = source.New(p.policy, p.config)
	for _, c := range p.clock {
		p.keeper.UseClock(c)
	}
	p.stop = await.Background(p.t, "the Keeper", p.keeper.Run)
}

// restart replaces the keeper, as another replica does.
func (p *place) restart() {
	p.stop()
	p.start()
	p.keeper.Wake()
}

func (p *place) led() bool {
	if p.leads.Load() {
		return true
	}
	p.idle.Add(1)
	return false
}

// turned has a sync.Once for each cluster that was turned on.
var turned sync.Map

// turnOn applies sources.yaml once to each cluster of the tests, and waits until it holds.
func turnOn(t *testing.T, env *kubetest.Env) {
	t.Helper()
	once, _ := turned.LoadOrStore(env, &sync.Once{})
	once.(*sync.Once).Do(func() {
		manifest, err := deployments.Sources()
		require.NoError(t, err)
		_, err = env.Cluster.KubectlWith(t.Context(), string(manifest), "apply", "--server-side", "-f", "-")
		require.NoError(t, err)
		k := source.New(nil, source.Config{REST: env.Agent, Namespace: kubetest.AgentNamespace})
		require.Eventually(t, func() bool {
			_, err := k.List(t.Context(), "sources-on")
			known := &problem.Error{}
			return errors.As(err, &known) && known.Code == runnerapi.CodeNamespaceNotManaged
		}, patience, 50*time.Millisecond)
		require.Eventually(t, func() bool {
			_, err := env.Cluster.Kubectl(context.Background(), "get", "sources.pipeops.io", "-A", "--as=system:serviceaccount:pipeops:pipeops-agent")
			return err == nil
		}, patience, 100*time.Millisecond)
	})
}

func (p *place) allow(text string) {
	p.t.Helper()
	doc, err := policy.FromConfigMap(map[string]string{"policy.yaml": text})
	require.NoError(p.t, err)
	p.policy.Set(doc, nil)
}

// secret is how the sources of the place get in.
func (p *place) secret(password string) {
	p.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "git-deploy"}, StringData: map[string]string{
		"url": p.git.HTTPS.URL + "/shop", "username": "reader", "password": password, "ca.crt": string(p.git.CA()),
	}}
	err := p.env.Client.Create(p.t.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		err = p.env.Client.Update(p.t.Context(), s)
	}
	require.NoError(p.t, err)
}

func (p *place) key(name string) runnerapi.Key {
	return runnerapi.Key{Namespace: p.namespace, Name: name}
}

func (p *place) put(name string, spec runnerapi.SourceSpec) {
	p.t.Helper()
	p.putBy(name, spec, runner)
}

func (p *place) putBy(name string, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) {
	p.t.Helper()
	spec.URL, spec.Credentials = p.git.URL("shop/deploy.git"), "git-deploy"
	require.Empty(p.t, spec.Validate(name))
	_, err := p.keeper.Set(p.t.Context(), p.key(name), spec, opts)
	require.NoError(p.t, err)
}

// sync asks for a look, and waits until it was had.
func (p *place) sync(name string) runnerapi.SourceStatus {
	p.t.Helper()
	opts := runner
	opts.Caller.RequestID = time.Now().Format(time.RFC3339Nano)
	_, err := p.keeper.Sync(p.t.Context(), p.key(name), opts)
	require.NoError(p.t, err)
	return p.settled(name)
}

func (p *place) settled(name string) runnerapi.SourceStatus {
	p.t.Helper()
	var status runnerapi.SourceStatus
	require.EventuallyWithT(p.t, func(c *assert.CollectT) {
		s, err := p.keeper.Get(p.t.Context(), p.key(name))
		if assert.NoError(c, err) {
			assert.NotEqual(c, runnerapi.SourcePending, s.Status.Phase)
		}
		status = s.Status
	}, patience, 50*time.Millisecond)
	return status
}

func (p *place) configMap(name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	return cm, p.env.Client.Get(p.t.Context(), types.NamespacedName{Namespace: p.namespace, Name: name}, cm)
}

// TestSource_PutAgainChecksAgain: the outcome from before is not that of the new command.
func TestSource_PutAgainChecksAgain(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:1\n"})
	p.secret("wrong")
	spec := runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"}
	p.put("again", spec)
	require.NotNil(t, p.settled("again").Error)
	p.secret("correct horse")
	p.put("again", spec)
	assert.Nil(t, p.settled("again").Error)
}

func TestSource_AppFollowsRepository(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	first := repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:1\nreplicas: 2\n"})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"})
	status := p.settled("web")
	require.Nil(t, status.Error)
	assert.Equal(t, runnerapi.SourceProgressing, status.Phase, "it is applied; nothing runs pods here")
	require.NotNil(t, status.Health)
	assert.Equal(t, "App/"+p.key("web").String(), status.Health.Object)
	assert.Equal(t, first, status.Commit)
	assert.EqualValues(t, 1, status.Revision)

	second := repo.Commit(map[string]string{"web/app.yaml": "apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {image: 'registry.example.com/web:2'}\n"})
	status = p.sync("web")
	require.Nil(t, status.Error)
	assert.Equal(t, second, status.Commit)
	var revisions []runnerapi.Revision
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		revisions, err = p.engine.Revisions(t.Context(), p.key("web"))
		assert.NoError(c, err)
		assert.Len(c, revisions, 2)
	}, patience, 50*time.Millisecond)
	assert.Equal(t, []string{second, first}, []string{revisions[0].Commit, revisions[1].Commit})
	assert.Equal(t, "ci", revisions[0].Runner)
	assert.Equal(t, "registry.example.com/web:2", revisions[0].Image)

	// What the policy does not allow the Runner, Git does not bring either.
	repo.Commit(map[string]string{"web/app.yaml": "image: evil.example.com/web:3\n"})
	status = p.sync("web")
	require.NotNil(t, status.Error)
	assert.Equal(t, string(runnerapi.CodePolicyDenied), status.Error.Code)
	assert.Equal(t, second, status.Commit, "what was applied before stays")
	bad := repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:3\nreplica: 2\n"})
	status = p.sync("web")
	require.NotNil(t, status.Error)
	assert.Contains(t, status.Error.Message, "web/app.yaml")
	assert.Contains(t, status.Error.Message, "replica")
	assert.Equal(t, bad, status.Error.Commit)
	repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:3\nreplicas: -1\nports: [{port: 0}]\n"})
	status = p.sync("web")
	require.NotNil(t, status.Error)
	assert.Contains(t, status.Error.Message, "web/app.yaml: replicas")
	assert.Contains(t, status.Error.Message, "web/app.yaml: ports[0].port", "all at once")
	p.allow(`rules: [{name: no git, commands: ["*"]}]`)
	status = p.sync("web")
	require.NotNil(t, status.Error)
	assert.Contains(t, status.Error.Message, "put-source")

	got, err := p.engine.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, "registry.example.com/web:2", got.Spec.Image)
	assert.GreaterOrEqual(t, len(p.audited.all()), 4)
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
	_, err = p.keeper.Get(t.Context(), p.key("web"))
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.NotFound, known.Code)
	require.NoError(t, p.engine.Delete(t.Context(), p.key("web"), runner))
}

// TestSource_FollowsNewCommit has the shortest interval.
func TestSource_FollowsNewCommit(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	p := open(t, clock)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Interval: runnerapi.MinSourceInterval.String()})
	require.Nil(t, p.settled("web").Error)
	second := repo.Commit(map[string]string{"one.yaml": configMapFile("one", "second")})
	await.Until(t, "the next look is planned beside the queue's own heartbeat", func() bool { return clock.Waiters() > 1 })
	clock.Step(runnerapi.MinSourceInterval * 11 / 10) // a look may be late by a tenth
	p.reaches("web", second, func() {})
	cm, err := p.configMap("one")
	require.NoError(t, err)
	assert.Equal(t, "second", cm.Data["a"])

	// The status keeps being true though no commit comes.
	require.NoError(t, p.env.Client.Delete(t.Context(), cm))
	await.Until(t, "the next look is planned", func() bool { return clock.Waiters() > 1 })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		clock.Step(runnerapi.MinSourceInterval)
		now, err := p.keeper.Get(t.Context(), p.key("web"))
		if assert.NoError(c, err) && assert.Equal(c, runnerapi.SourceDegraded, now.Status.Phase) {
			assert.Contains(c, now.Status.Health.Message, "one was applied and is no longer there")
		}
	}, patience, 100*time.Millisecond)
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// Before the delete has read what there is, the journal prevents it; after that, the UID.
func TestSource_DelayedDeleteSparesNewer(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.leads.Store(false) // no replica looks at it
	p.secret("correct horse")
	p.git.Create(t, "shop/deploy.git")
	put := func() { p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests}) }
	remove := func(answered func() bool) error {
		held := runner
		held.Answered = func(context.Context) (bool, error) { return answered(), nil }
		return p.keeper.Delete(t.Context(), p.key("web"), held)
	}
	put()
	require.NoError(t, remove(func() bool { return true }))
	_, err := p.keeper.Get(t.Context(), p.key("web"))
	require.NoError(t, err)

	mine, asked := p.keeper, false
	require.NoError(t, remove(func() bool {
		if asked {
			return true
		}
		asked = true
		p.keeper = source.New(p.policy, p.config) // another replica
		require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
		put()
		p.keeper = mine
		return false
	}))
	_, err = p.keeper.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	require.NoError(t, remove(func() bool { return false }))
	_, err = p.keeper.Get(t.Context(), p.key("web"))
	require.Error(t, err)
}

// TestSource_DelayedPutSparesNewer has another replica carry out the command, and a later one come.
func TestSource_DelayedPutSparesNewer(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.leads.Store(false) // no replica looks at it
	p.secret("correct horse")
	p.git.Create(t, "shop/deploy.git")
	put := func(path, command string) {
		opts := runner
		opts.Command = command
		p.putBy("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: path}, opts)
	}
	put("first", "one")
	put("second", "two")
	put("first", "one")
	s, err := p.keeper.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, "second", s.Spec.Path)
}

// reaches waits until a source is at a commit. It calls meanwhile before each try.
func (p *place) reaches(name, commit string, meanwhile func()) {
	p.t.Helper()
	require.EventuallyWithT(p.t, func(c *assert.CollectT) {
		meanwhile()
		s, err := p.keeper.Get(p.t.Context(), p.key(name))
		if assert.NoError(c, err) {
			assert.Equal(c, commit, s.Status.Commit)
		}
	}, patience, 100*time.Millisecond)
}

func configMapFile(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {a: " + value + "}\n"
}

func TestSource_ManifestsFollowRepository(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	repo.Commit(map[string]string{
		"plain/one.yaml": configMapFile("one", "first"), "plain/two.yaml": configMapFile("two", "first"),
		"kustom/kustomization.yaml": "namePrefix: k-\nresources: [one.yaml]\n", "kustom/one.yaml": configMapFile("one", "k"),
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "chart/values.yaml": "a: default\n",
		"chart/templates/one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-chart'}\ndata: {a: '{{ .Values.a }}', kube: '{{ .Capabilities.KubeVersion.Version }}'}\n",
	})
	p.put("plain", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "plain", Prune: true})
	p.put("kustom", runnerapi.SourceSpec{Type: runnerapi.SourceKustomize, Path: "kustom"})
	p.put("chart", runnerapi.SourceSpec{Type: runnerapi.SourceHelm, Path: "chart", Chart: &runnerapi.SourceChart{Values: "a: mine"}})
	for name, objects := range map[string]int{"plain": 2, "kustom": 1, "chart": 1} {
		status := p.settled(name)
		require.Nil(t, status.Error, name)
		assert.Equal(t, objects, status.Objects, name)
	}
	for name, value := range map[string]string{"one": "first", "two": "first", "k-one": "k", "chart-chart": "mine"} {
		cm, err := p.configMap(name)
		require.NoError(t, err, name)
		assert.Equal(t, value, cm.Data["a"], name)
	}

	one := types.NamespacedName{Namespace: p.namespace, Name: "one"}
	_, err := p.env.Cluster.Kubectl(t.Context(), "-n", one.Namespace, "patch", "configmap", one.Name, "--field-manager=somebody", "-p", `{"data":{"a":"theirs"}}`)
	require.NoError(t, err)
	repo.Commit(map[string]string{"plain/one.yaml": configMapFile("one", "second"), "plain/two.yaml": ""})
	conflict := p.sync("plain").Error
	require.NotNil(t, conflict, "fields of others stay theirs")
	assert.Contains(t, conflict.Message, "somebody has data.a")
	assert.Contains(t, conflict.Fix, "--force-conflicts")
	p.put("plain", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "plain", Prune: true, ForceConflicts: true})
	require.Nil(t, p.sync("plain").Error)
	cm, err := p.configMap("one")
	require.NoError(t, err)
	assert.Equal(t, "second", cm.Data["a"])
	_, err = p.configMap("two")
	assert.True(t, apierrors.IsNotFound(err), "what left the repository is pruned")

	repo.Commit(map[string]string{"plain/bad.yaml": configMapFile("bad", "x") + "---\nkind: [\n"})
	status := p.sync("plain")
	require.NotNil(t, status.Error)
	assert.Contains(t, status.Error.Message, "plain/bad.yaml: document 2, line 6")
	repo.Commit(map[string]string{"plain/bad.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"})
	status = p.sync("plain")
	require.NotNil(t, status.Error)
	assert.Equal(t, string(runnerapi.CodePolicyDenied), status.Error.Code, "kinds are the policy's to bound")
	_, err = p.configMap("bad")
	assert.True(t, apierrors.IsNotFound(err), "nothing half done")

	repo.Commit(map[string]string{
		"plain/bad.yaml":     configMapFile("good", "x") + "---\nkind: [\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n",
		"plain/strange.yaml": "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: a}\n---\na: b\n",
		"plain/worse.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ncolour: red\n",
	})
	status = p.sync("plain")
	require.NotNil(t, status.Error)
	all := strings.Split(status.Error.Message, "\n")
	require.Len(t, all, 5, "all refusals come at once")
	for n, want := range []string{
		"plain/bad.yaml: document 2, line 6: ", "plain/strange.yaml: document 2, line 5: ",
		"plain/bad.yaml, document 3, line 8: Secret/", "plain/strange.yaml, document 1, line 1: Strange/", "plain/worse.yaml, document 1, line 1: ConfigMap/",
	} {
		assert.Contains(t, all[n], want)
	}
	_, err = p.configMap("good")
	assert.True(t, apierrors.IsNotFound(err), "nothing half done")
	repo.Commit(map[string]string{"plain/strange.yaml": "", "plain/worse.yaml": ""})

	p.allow(strings.Replace(allowing, "[ConfigMap]", "[ConfigMap, Deployment.apps]", 1))
	ours := strings.Replace(deploymentFile, "IMAGE", "registry.example.com/shop/web:1", 1)
	for field, file := range map[string]string{
		"spec.template.spec.containers[0].image": strings.Replace(deploymentFile, "IMAGE", "docker.io/library/busybox", 1),
		"spec.replicas":                          strings.Replace(ours, "spec:\n", "spec:\n  replicas: 9\n", 1),
		"metadata.annotations.example.com/a":     strings.Replace(ours, "{name: web}", "{name: web, annotations: {example.com/a: b}}", 1),
	} {
		repo.Commit(map[string]string{"plain/bad.yaml": file})
		status = p.sync("plain")
		require.NotNil(t, status.Error, field)
		assert.Equal(t, string(runnerapi.CodePolicyDenied), status.Error.Code, field)
		assert.Contains(t, status.Error.Message, field)
	}
}

const deploymentFile = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: "IMAGE", args: [ARGS], securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`

// TestSource_StatusFollowsCluster changes the cluster after the commit was applied: an App fails,
// pods fail, and objects are deleted.
func TestSource_StatusFollowsCluster(t *testing.T) {
	suite.Release(t, "a source's status, long after its commit was applied")
	env := kubetest.Full(t)
	p := openIn(t, env)
	p.allow(strings.NewReplacer("[ConfigMap]", "[ConfigMap, Deployment.apps]", "    images: [registry.example.com]\n", "").Replace(allowing))
	p.secret("correct horse")
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	repo := p.git.Create(t, "shop/deploy.git")
	write := func(args string) string {
		return repo.Commit(map[string]string{
			"app.yaml":          "image: " + image + "\nargs: [" + args + "]\nsecurity: {runAsUser: 10001}\n",
			"web/manifest.yaml": strings.NewReplacer("IMAGE", image, "ARGS", args).Replace(deploymentFile),
		})
	}
	first := write("")
	reports := &reporting{place: p, repo: repo, forge: forgetest.Start(t, "shop/deploy", "hush")}
	reports.token("hush")
	p.put("app", reports.spec(runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml"}))
	p.put("set", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "web"})
	becomes := func(name string, phase runnerapi.SourcePhase, says string) *runnerapi.SourceHealth {
		t.Helper()
		var s runnerapi.SourceStatus
		await.Until(t, "source "+name+" is "+string(phase), func() bool {
			now, err := p.keeper.Get(t.Context(), p.key(name))
			require.NoError(t, err)
			s = now.Status
			return s.Phase == phase
		})
		if says != "" {
			require.NotNil(t, s.Health)
			assert.Contains(t, s.Health.Message, says)
		}
		return s.Health
	}
	becomes("app", runnerapi.SourceReady, "")
	becomes("set", runnerapi.SourceReady, "")
	_, err = env.Cluster.Kubectl(t.Context(), "-n", p.namespace, "delete", "deployment", "web")
	require.NoError(t, err)
	becomes("set", runnerapi.SourceDegraded, "Deployment/"+p.namespace+"/web was applied and is no longer there")

	await.Until(t, "the forge has the success", func() bool {
		return assert.ObjectsAreEqual([]string{"pending", "success"}, reports.forge.States(first))
	})
	second := write("-crash-after=50ms, -exit-code=3")
	p.sync("app")
	p.sync("set")
	for _, name := range []string{"app", "set"} {
		h := becomes(name, runnerapi.SourceDegraded, "exit code 3")
		require.NotNil(t, h.Diagnosis)
		assert.Equal(t, runnerapi.CauseCrashLoop, h.Diagnosis.Cause)
	}
	await.Until(t, "the forge has the failure", func() bool {
		return assert.ObjectsAreEqual([]string{"pending", "failure"}, reports.forge.States(second))
	})
	assert.Contains(t, reports.last().Description, "exit code 3")
}

func typesOf(conditions []runnerapi.Condition) (types []runnerapi.ConditionType) {
	for _, c := range conditions {
		types = append(types, c.Type)
	}
	return types
}

func TestSource_ReportsErrors(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.secret("wrong")
	repo := p.git.Create(t, "shop/deploy.git")
	commit := repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:1\n"})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"})
	status := p.settled("web")
	require.NotNil(t, status.Error)
	assert.Equal(t, "credentials_refused", status.Error.Code)
	assert.NotContains(t, status.Error.Message, "wrong")
	assert.Equal(t, []runnerapi.ConditionType{runnerapi.ConditionReady, runnerapi.ConditionStalled}, typesOf(status.Conditions))

	p.secret("correct horse")
	status = p.sync("web")
	require.Nil(t, status.Error)
	assert.Equal(t, commit, status.Commit)
	assert.Equal(t, []runnerapi.ConditionType{runnerapi.ConditionReady, runnerapi.ConditionReconciling}, typesOf(status.Conditions))

	for name, spec := range map[string]runnerapi.SourceSpec{
		"path_not_found": {Type: runnerapi.SourceApp, Path: "db/app.yaml"}, "ref_not_found": {Type: runnerapi.SourceApp, Path: "a", Ref: runnerapi.GitRef{Branch: "none"}},
	} {
		spec.URL, spec.Credentials = p.git.URL("shop/deploy.git"), "git-deploy"
		opts := runner
		opts.DryRun = true
		_, err := p.keeper.Set(t.Context(), p.key("dry"), spec, opts)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known, name)
		assert.Equal(t, name, string(known.Code))
	}
	_, err := p.keeper.Get(t.Context(), p.key("dry"))
	require.Error(t, err, "a dry run leaves nothing")
	_, err = p.keeper.Set(t.Context(), runnerapi.Key{Namespace: "kube-system", Name: "web"}, runnerapi.SourceSpec{Type: runnerapi.SourceApp}, runner)
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, known.Code)

	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml", Suspend: true})
	assert.Equal(t, runnerapi.SourceSuspended, p.settled("web").Phase)
	list, err := p.keeper.List(t.Context(), p.namespace)
	require.NoError(t, err)
	assert.Len(t, list, 1)
}
