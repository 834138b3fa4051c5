package failures

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

// What a failure befalls.
const anApp, aSet, aRelease = "app", "set", "release"

var kinds = []string{anApp, aSet, aRelease}

const (
	// patience is for one failure. The CronJob whose runs are skipped takes three minutes by
	// itself.
	patience = 6 * time.Minute
	// askAgain is between two looks at what has no status to watch.
	askAgain = 250 * time.Millisecond
	// releasePatience is how long a release waits for causes that may pass.
	releasePatience = time.Second
)

var byTest = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "tester", RequestID: "req-1"}}

// bench is an agent for one batch: what makes Apps, sets and releases, each in namespaces of
// their own, of which each scene has one.
type bench struct {
	env        *kubetest.Env
	namespaces map[string]map[*Scene]string
	seen       map[string]*Sightings
	engine     *app.Engine
	applier    *manifests.Applier
	newHelm    func() *helm.Releases
	outcomes   map[string]chan outcome
	ctx        context.Context //nolint:containedctx // of what continues beside the test
	work       *sync.WaitGroup
}

// outcome is what was said of a failure.
type outcome struct {
	diagnosis *runnerapi.Diagnosis
	phase     runnerapi.Phase
	healthy   bool
	err       error
}

// settling is how long pods have to stay ready: short, so that tests can wait for it, and longer
// than a busy kubelet takes to notice that a process has ended.
func settling() diagnose.Stabilization {
	s := app.StabilizationFor(12 * time.Second)
	s.Volume = 5 * time.Second // metrics-server has figures of a pod only after a minute
	return s
}

func newBench(t *testing.T, env *kubetest.Env, batch []Failure) *bench {
	t.Helper()
	b := &bench{
		env: env, namespaces: map[string]map[*Scene]string{}, seen: map[string]*Sightings{},
		outcomes: map[string]chan outcome{}, work: &sync.WaitGroup{},
	}
	all := map[string][]string{}
	for _, kind := range kinds {
		b.namespaces[kind], b.seen[kind] = map[*Scene]string{}, NewSightings()
		for _, f := range batch {
			b.seen[kind].Expect(f.Name, f.Cause, f.Signal)
			if b.namespaces[kind][f.Scene] == "" {
				ns := b.place(t, f.Scene)
				if kind != anApp { // whose pods are never bare
					env.Entitle(t, ns, kubetest.ManifestRole)
				}
				b.namespaces[kind][f.Scene] = ns
				all[kind] = append(all[kind], ns)
				b.seen[kind].In(t, env, ns)
			}
		}
	}
	checker := workloadhealth.New(env.Agent, settling())
	await.Background(t, "the engine", b.makeEngine(t, all[anApp]))
	await.Until(t, "the engine is ready", b.engine.Ready)
	b.applier = manifests.New(manifests.Config{
		REST: env.Agent, Namespace: kubetest.AgentOf(all[aSet][0]), Namespaces: all[aSet], Workloads: checker,
	})
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	render := rendertest.Process(t)
	b.newHelm = func() *helm.Releases { // one carries out some commands at a time
		return helm.New(env.Agent, helm.Options{
			Namespace: kubetest.AgentOf(all[aRelease][0]), Namespaces: all[aRelease], Replica: "agent-1", Render: render,
			Workloads: checker, Patience: releasePatience, Log: log,
		})
	}
	stopper := &workloadhealth.Stopper{
		Checker: checker, Namespaces: append(all[aSet], all[aRelease]...), Leads: func() bool { return true }, Log: log,
	}
	await.Background(t, "what stops workloads", stopper.Run)
	ctx, cancel := context.WithCancel(context.Background())
	b.ctx = ctx
	t.Cleanup(func() { cancel(); b.work.Wait() })
	return b
}

// place is a namespace with its scene.
func (b *bench) place(t *testing.T, scene *Scene) string {
	t.Helper()
	ns := b.env.Namespace(t)
	t.Cleanup(func() { b.env.MakeRoom(t, ns) })
	Furnish(t, b.env, ns)
	if scene != nil {
		scene.Prepare(t, b.env, ns)
	}
	return ns
}

func (b *bench) makeEngine(t *testing.T, namespaces []string) func(context.Context) error {
	t.Helper()
	engine, err := app.New(app.Config{
		RESTConfig: b.env.Agent, Namespace: kubetest.AgentOf(namespaces[0]), Namespaces: namespaces,
		Stabilization: new(settling()),
		Log:           zerolog.New(os.Stderr).Level(zerolog.WarnLevel), // controller-runtime logs to it as long as the process lives
	})
	require.NoError(t, err)
	b.engine = engine
	return engine.Run
}

// key names what a failure befalls.
func (b *bench) key(f Failure, kind string) runnerapi.Key {
	return runnerapi.Key{Namespace: b.namespaces[kind][f.Scene], Name: f.Name}
}

// begin has a failure befall an App, a set and a release, side by side.
func (b *bench) begin(t *testing.T, f Failure) {
	t.Helper()
	docs, err := manifests.Read(strings.NewReader(f.Manifest(t, b.namespaces[aSet][f.Scene])))
	require.NoError(t, err)
	archive := rendertest.Archive(t, "failing/Chart.yaml", "apiVersion: v2\nname: failing\nversion: 1.0.0\n",
		"failing/templates/all.yaml", f.Manifest(t, b.namespaces[aRelease][f.Scene]))
	do := map[string]func(context.Context) outcome{
		aSet:     func(ctx context.Context) outcome { return b.set(ctx, f, docs) },
		aRelease: func(ctx context.Context) outcome { return b.release(ctx, f, archive) },
	}
	if f.NoApp == "" {
		do[anApp] = func(ctx context.Context) outcome { return b.app(ctx, f) }
	}
	for kind, befall := range do {
		out := make(chan outcome, 1)
		b.outcomes[kind+"/"+f.Name] = out
		b.work.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, patience)
			defer cancel()
			out <- befall(ctx)
		})
	}
}

// outcome waits for what became of a failure. Its own patience ends before.
func (b *bench) outcome(t *testing.T, f Failure, kind string) outcome {
	t.Helper()
	select {
	case o := <-b.outcomes[kind+"/"+f.Name]:
		return o
	case <-time.After(patience + time.Minute):
		require.FailNow(t, "there is no outcome")
		return outcome{}
	}
}

// app deploys an App, and waits for its diagnosis.
func (b *bench) app(ctx context.Context, f Failure) (out outcome) {
	key := b.key(f, anApp)
	if _, err := b.engine.Deploy(ctx, key, f.Spec, byTest); err != nil {
		return outcome{err: err}
	}
	out.err = asked(ctx, func() (string, error) {
		a, err := b.engine.Get(ctx, key)
		if err != nil {
			return "", err
		}
		out.diagnosis, out.phase = a.Status.Diagnosis, a.Status.Phase
		if f.Matches(out.diagnosis) && (f.Lives || out.phase == runnerapi.PhaseFailed) {
			return "", nil
		}
		return fmt.Sprintf("%s, waiting for %s, %+v", a.Status.Phase, a.Status.WaitingFor, a.Status.Diagnosis), nil
	})
	out.healthy = b.seen[anApp].CalledHealthy(f.Name)
	return out
}

// set applies manifests, which waits until they are ready or will not become so, and continues
// asking how the set is until its diagnosis is there.
func (b *bench) set(ctx context.Context, f Failure, docs manifests.Documents) (out outcome) {
	set := manifests.Set{Namespace: b.key(f, aSet).Namespace, Name: f.Name}
	r, err := b.applier.Apply(ctx, set, docs.Objects, manifests.Options{Wait: patience, Where: docs.Where})
	if err != nil {
		return outcome{err: err}
	}
	out.healthy = r.Ready
	for _, o := range r.Objects {
		if o.Problem != nil {
			return outcome{err: o.Problem}
		}
		if f.Matches(o.Diagnosis) {
			b.seen[aSet].Told(f.Name)
		}
	}
	out.err = asked(ctx, func() (string, error) {
		held, err := b.applier.Get(ctx, set)
		if err != nil {
			return "", err
		}
		out.healthy = out.healthy || ptr.Deref(held.Ready, false)
		said := ""
		for _, o := range held.Objects {
			if f.Matches(o.Diagnosis) {
				out.diagnosis = o.Diagnosis
				b.seen[aSet].Told(f.Name)
				return "", nil
			}
			said += fmt.Sprintf("%s %s: %s %s %+v\n", o.Kind, o.Name, o.State, o.Message, o.Diagnosis)
		}
		return said, nil
	})
	return out
}

// release puts a chart, waits for the command's end, and keeps asking how the release is until
// its diagnosis is there.
func (b *bench) release(ctx context.Context, f Failure, archive []byte) (out outcome) {
	key, releases := b.key(f, aRelease), b.newHelm()
	ending, end := context.WithCancel(ctx)
	b.work.Go(func() { _ = releases.Run(ending) })
	defer end()
	spec := runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: archive}, Timeout: patience.String()}
	if _, err := releases.Deploy(ctx, key, spec, runnerapi.ReleaseOptions{WriteOptions: byTest}); err != nil {
		return outcome{err: err}
	}
	b.work.Go(func() { b.lookBeside(ending, f, releases) })
	r, err := releases.Wait(ctx, key)
	if err != nil {
		return outcome{err: err}
	}
	// Helm does not wait for Jobs, which end.
	out.healthy = r.Status == runnerapi.ReleaseDeployed && !f.Spec.Type.Runs()
	out.err = asked(ctx, func() (string, error) {
		if r, err = releases.Get(ctx, key); err != nil {
			return "", err
		}
		said, ready := fmt.Sprintf("%s: %s\n", r.Status, r.Description), true
		for _, o := range r.Objects {
			if f.Matches(o.Diagnosis) {
				out.diagnosis = o.Diagnosis
				b.seen[aRelease].Told(f.Name)
				return "", nil
			}
			ready = ready && (o.State == runnerapi.ObjectReady || o.State == "")
			said += fmt.Sprintf("%s %s: %s %s %+v\n", o.Kind, o.Name, o.State, o.Message, o.Diagnosis)
		}
		out.healthy = out.healthy || ready
		return said, nil
	})
	return out
}

// lookBeside asks how a release is while its command waits, as `release status` does, until it
// tells of the failure.
func (b *bench) lookBeside(ctx context.Context, f Failure, releases *helm.Releases) {
	_ = asked(ctx, func() (string, error) { // the outcome reports a failure that is not told
		r, err := releases.Get(ctx, b.key(f, aRelease))
		if err != nil {
			return "the release cannot be read: " + err.Error(), nil //nolint:nilerr // its revision is not there yet
		}
		for _, o := range r.Objects {
			if f.Matches(o.Diagnosis) {
				b.seen[aRelease].Told(f.Name)
				return "", nil
			}
		}
		return "no object of the release is diagnosed", nil
	})
}

// asked asks again and again until nothing is missing. An error says what was missing at last.
func asked(ctx context.Context, ask func() (missing string, err error)) error {
	said := ""
	for {
		missing, err := ask()
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && missing == "":
			return nil
		case missing != "":
			said = missing
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return fmt.Errorf("it is not told: %s", said)
		}
	}
}
