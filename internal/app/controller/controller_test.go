package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

var began = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// fixture is a Controller over its own cluster without controllers.
type fixture struct {
	*Controller
	cluster client.Client
	now     time.Time
}

// digests are what Secrets and ConfigMaps hold, by name.
type digests map[string]string

func (d digests) ContentDigest(_ context.Context, _ runnerapi.RestartTrigger, key runnerapi.Key) (string, error) {
	if d[key.Name] == "unreadable" {
		return "", errors.New("unreadable")
	}
	return d[key.Name], nil
}

func newController(t *testing.T, source Contents, objects ...client.Object) *fixture {
	t.Helper()
	scheme, err := appcache.NewScheme()
	require.NoError(t, err)
	managed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: objectmeta.Labels()}}
	f := &fixture{now: began}
	f.cluster = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.App{}).WithObjects(append(objects, managed)...).Build()
	clock := func() time.Time { return f.now }
	s := appcache.New(f.cluster, f.cluster, objectmeta.Scope{}, zerolog.Nop(), clock)
	f.Controller = New(Config{
		Store: s, Applier: apply.New(s, zerolog.Nop(), clock), History: revision.New(s), Contents: source, Log: zerolog.Nop(), Now: clock,
	})
	return f
}

func app(kind runnerapi.AppType, change ...func(*v1alpha1.App)) *v1alpha1.App {
	a := &v1alpha1.App{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "app-1", Generation: 1},
		Spec:       runnerapi.AppSpec{Type: kind, Image: "example.com/web:1"},
	}
	for _, f := range change {
		f(a)
	}
	return a
}

func pipeline(a *v1alpha1.App) {
	a.Spec.Image, a.Spec.Jobs = "", []runnerapi.PipelineJob{{Name: "build", Image: "b:1"}, {Name: "push", Image: "p:1"}}
}

// end has a Job's run end.
func (f *fixture) end(t *testing.T, name string, how batchv1.JobConditionType) {
	t.Helper()
	j := f.job(t, name)
	j.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(f.now)}}
	require.NoError(t, f.cluster.Status().Update(t.Context(), j))
}

// job returns a Job, or nil.
func (f *fixture) job(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	j := &batchv1.Job{}
	err := f.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, j)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return j
}

func TestJob_RunsOncePerSpec(t *testing.T) {
	a := app(runnerapi.TypeJob, func(a *v1alpha1.App) { a.Spec.Job = &runnerapi.JobOptions{TTLSeconds: new(int32(60))} })
	f := newController(t, nil, a)
	w, err := f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	assert.Equal(t, workload.RunKey(a), w.GetAnnotations()[objectmeta.Run])
	left, err := f.jobs.sweepJob(t.Context(), a, made{workload: w})
	require.NoError(t, err)
	assert.Zero(t, left, "it has not ended")

	f.end(t, "web", batchv1.JobComplete)
	a.Status.Finished = workload.RunKey(a)
	require.NoError(t, f.cluster.Status().Update(t.Context(), a))
	w, err = f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	left, err = f.jobs.sweepJob(t.Context(), a, made{workload: w})
	require.NoError(t, err)
	assert.Equal(t, time.Minute, left)
	f.now = f.now.Add(time.Minute)
	_, err = f.jobs.sweepJob(t.Context(), a, made{workload: w})
	require.NoError(t, err)
	assert.Nil(t, f.job(t, "web"), "its time is up")
	w, err = f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	assert.Nil(t, w, "what has run does not run again")

	a.Spec.Image = "example.com/web:2"
	w, err = f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	assert.NotNil(t, w)
	a.Spec.Image = "example.com/web:3"
	w, err = f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	assert.Nil(t, w, "the previous run goes first")
	assert.Nil(t, f.job(t, "web"))
}

func TestJob_RefusesForeign(t *testing.T) {
	a := app(runnerapi.TypeJob)
	f := newController(t, nil, a, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	_, err := f.jobs.convergeJob(t.Context(), a)
	var foreign *apply.ForeignError
	assert.ErrorAs(t, err, &foreign)
}

func TestJob_FormerLeaderRunsNothing(t *testing.T) {
	a := app(runnerapi.TypeJob)
	f := newController(t, nil, app(runnerapi.TypeJob, func(a *v1alpha1.App) { a.Status.Finished = "by the next leader" }))
	_, err := f.jobs.convergeJob(t.Context(), a)
	assert.True(t, apierrors.IsConflict(err), err)
	assert.Nil(t, f.job(t, "web"))
}

func TestJob_RecreatesDeletedRun(t *testing.T) {
	a := app(runnerapi.TypeJob, func(a *v1alpha1.App) { a.Status.ObservedGeneration, a.Status.Made = 1, []string{"job/web"} })
	f := newController(t, nil, a)
	_, err := f.jobs.convergeJob(t.Context(), a)
	require.NoError(t, err)
	require.NotNil(t, f.job(t, "web"))
	require.NotNil(t, a.Status.Drift)
	assert.True(t, a.Status.Drift.Deleted)
	want, ok := workload.Unpatched(a)[0].(*batchv1.Job)
	require.True(t, ok)
	require.NoError(t, f.jobs.makeJob(t.Context(), a, want), "the watch of Jobs lags behind that of Apps")
	assert.EqualValues(t, 1, a.Status.Drift.Corrections)
}

func TestJob_LateWatchRunsNothingAgain(t *testing.T) {
	a := app(runnerapi.TypeJob)
	running := made{workload: &batchv1.Job{}}
	assert.False(t, ranBefore(a, running))
	a.Status.Finished = workload.RunKey(a)
	assert.True(t, ranBefore(a, running), "the watch of Jobs has not reported the end")
	assert.True(t, ranBefore(a, made{}), "it was removed")
	assert.False(t, ranBefore(a, made{refusal: &runnerapi.Diagnosis{}}))
}

func TestPipeline_StopsAtFailure(t *testing.T) {
	for how, want := range map[batchv1.JobConditionType][]runnerapi.JobState{
		batchv1.JobComplete: {runnerapi.JobSucceeded, runnerapi.JobRunning},
		batchv1.JobFailed:   {runnerapi.JobFailed, runnerapi.JobNotRun},
	} {
		a := app(runnerapi.TypePipeline, pipeline)
		f := newController(t, nil, a)
		_, err := f.jobs.convergePipeline(t.Context(), a)
		require.NoError(t, err)
		assert.Nil(t, f.job(t, "web-push"), "one after the other")
		f.end(t, "web-build", how)
		w, err := f.jobs.convergePipeline(t.Context(), a)
		require.NoError(t, err)
		var s v1alpha1.Status
		require.NoError(t, f.jobs.notePipeline(t.Context(), a, &s, made{workload: w}, nil))
		require.Len(t, s.Jobs, 2)
		assert.Equal(t, want, []runnerapi.JobState{s.Jobs[0].State, s.Jobs[1].State})
		assert.Equal(t, how == batchv1.JobFailed, s.Finished != "")
	}
}

func TestPipeline_RemembersRunAfterSweep(t *testing.T) {
	a := app(runnerapi.TypePipeline, pipeline, func(a *v1alpha1.App) { a.Spec.Job = &runnerapi.JobOptions{TTLSeconds: new(int32(60))} })
	f := newController(t, nil, a)
	converge := func() client.Object {
		w, err := f.jobs.convergePipeline(t.Context(), a)
		require.NoError(t, err)
		s := *a.Status.DeepCopy()
		require.NoError(t, f.jobs.notePipeline(t.Context(), a, &s, made{workload: w}, nil))
		a.Status = s
		require.NoError(t, f.cluster.Status().Update(t.Context(), a))
		return w
	}
	sweep := func() time.Duration {
		left, err := f.jobs.sweepJob(t.Context(), a, made{})
		require.NoError(t, err)
		return left
	}
	for _, name := range []string{"web-build", "web-push"} {
		converge()
		f.end(t, name, batchv1.JobComplete)
	}
	assert.Equal(t, "web-push", converge().GetName())
	assert.Equal(t, workload.RunKey(a), a.Status.Finished)
	assert.Equal(t, time.Minute, sweep())
	f.now = f.now.Add(time.Hour)
	sweep()
	assert.Nil(t, f.job(t, "web-build"))
	assert.Nil(t, converge(), "nothing runs again")
	assert.Equal(t, runnerapi.JobSucceeded, a.Status.Jobs[1].State)

	a.Annotations = map[string]string{objectmeta.RestartedAt: "now"}
	require.NoError(t, f.cluster.Update(t.Context(), a))
	converge()
	assert.NotNil(t, f.job(t, "web-build"), "a restart is another run")
	a.Annotations[objectmeta.RestartedAt] = "later"
	require.NoError(t, f.cluster.Update(t.Context(), a))
	assert.Nil(t, converge(), "two runs must not overlap")
	assert.Nil(t, f.job(t, "web-build"))
}

func TestPipeline_BlocksJobInTurn(t *testing.T) {
	a := app(runnerapi.TypePipeline, pipeline)
	refusal := &runnerapi.Diagnosis{Cause: runnerapi.CauseQuotaExceeded}
	var s v1alpha1.Status
	require.NoError(t, newController(t, nil, a).jobs.notePipeline(t.Context(), a, &s, made{refusal: refusal}, nil))
	assert.Equal(t, runnerapi.JobBlocked, s.Jobs[0].State)
	assert.Equal(t, refusal, s.Jobs[0].Diagnosis)
	assert.Equal(t, runnerapi.JobWaiting, s.Jobs[1].State)

	f := newController(t, nil, a)
	w, err := f.jobs.convergePipeline(t.Context(), a)
	require.NoError(t, err)
	for cause, want := range map[runnerapi.Cause]runnerapi.JobState{
		runnerapi.CauseCrashLoop: runnerapi.JobRunning, runnerapi.CauseMissingSecret: runnerapi.JobBlocked,
	} {
		s.Diagnosis = &runnerapi.Diagnosis{Cause: cause}
		require.NoError(t, f.jobs.notePipeline(t.Context(), a, &s, made{workload: w}, nil))
		assert.Equal(t, want, s.Jobs[0].State, "Kubernetes tries a crash again")
	}
}

func TestRuns_TellExitCode(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "job", CreationTimestamp: metav1.NewTime(began)}}
	j.Status.Failed = 2
	pod := func(owner types.UID, code int32, at time.Duration) *corev1.Pod {
		ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(began.Add(at))}}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: owner, Controller: new(true)}}},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: ended}}},
		}
	}
	all := runs([]*batchv1.Job{j}, []*corev1.Pod{pod("job", 1, time.Second), pod("job", 2, time.Minute), pod("job", 3, 0), pod("other", 4, time.Hour)})
	assert.Equal(t, []runnerapi.Run{{Name: "web-1", StartedAt: began, Outcome: runnerapi.RunRunning, Tries: 2, ExitCode: new(int32(2))}}, all)
	assert.Len(t, runs(slices.Repeat([]*batchv1.Job{j}, maxRuns+1), nil), maxRuns)
	assert.Nil(t, runs(nil, nil))
}

func TestContents_RestartOnChange(t *testing.T) {
	a := app("", func(a *v1alpha1.App) {
		a.Spec.Env = []runnerapi.EnvVar{{Name: "DB", Secret: &runnerapi.KeyRef{Name: "db", Key: "url"}}}
		a.Spec.RestartOn = []runnerapi.RestartTrigger{runnerapi.RestartOnSecrets}
	})
	held := digests{"db": "1"}
	f := newController(t, held, a)
	follow := func() string {
		a, err := f.store.GetLive(t.Context(), a.Key())
		require.NoError(t, err)
		err = f.contents.follow(t.Context(), a, false)
		assert.Equal(t, held["db"] == "unreadable", err != nil, err)
		return a.Annotations[objectmeta.Contents]
	}
	first := follow()
	assert.NotEmpty(t, first)
	held["db"] = "2"
	assert.Equal(t, first, follow(), "it was read a moment ago")
	require.NoError(t, f.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: "shop", Name: "other"}))
	assert.Equal(t, first, follow(), "it uses no such object")
	require.NoError(t, f.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: "shop", Name: "db"}))
	second := follow()
	assert.NotEqual(t, first, second)
	for _, content := range []string{"", "unreadable", "unreadable"} { // what failed is tried at once
		held["db"], f.now = content, f.now.Add(lookAgain)
		assert.Equal(t, second, follow(), "the pods continue with what they have")
	}
	held["db"] = ""
	follow()
	held["db"] = "3" // no time has passed
	assert.NotEqual(t, second, follow(), "what was missing is read at each look")
	assert.Equal(t, lookAgain, f.contents.again(a), "others may change it, and nothing else of the App")
	a.Spec.RestartOn = nil
	assert.Zero(t, f.contents.again(a))
}

// TestContents_LooksAtWhatMissesOne: a deploy right after `secret set` would otherwise see the
// cause that was.
func TestContents_LooksAtWhatMissesOne(t *testing.T) {
	a := app("", func(a *v1alpha1.App) { a.Status.Diagnosis = &runnerapi.Diagnosis{Cause: runnerapi.CauseMissingSecret} })
	f := newController(t, digests{"db": "1"}, a)
	looked := make(chan runnerapi.Key, 1)
	await.Background(t, "the controller's queue", func(ctx context.Context) error {
		select {
		case e := <-f.store.Resynced():
			looked <- e.Object.Key()
		case <-ctx.Done():
		}
		return nil
	})
	require.NoError(t, f.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: a.Namespace, Name: "db"}))
	assert.Equal(t, a.Key(), await.Receive(t, looked, "a look at the App"))
}

func TestRefusal_CauseAndFix(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, c := range map[string]struct {
		err  error
		want runnerapi.Cause // none if it is tried again
	}{
		"foreign":     {&apply.ForeignError{Kind: "Service", Name: "web"}, runnerapi.CauseConflict},
		"invalid":     {apierrors.NewInvalid(schema.GroupKind{Kind: "deployments"}, "web", nil), runnerapi.CauseInvalidSpec},
		"bad request": {apierrors.NewBadRequest("unknown field"), runnerapi.CauseInvalidSpec},
		"forbidden":   {apierrors.NewForbidden(deployments, "web", errors.New("no right")), runnerapi.CauseAdmissionRefused},
		"quota":       {apierrors.NewForbidden(deployments, "web", errors.New("exceeded quota: pods, requested: pods=1")), runnerapi.CauseQuotaExceeded},
		"webhook":     {apierrors.NewForbidden(deployments, "web", errors.New(`admission webhook "x.example.com" denied the request: no`)), runnerapi.CauseAdmissionRefused},
		"unexpected":  {apierrors.NewResourceExpired("gone"), runnerapi.CauseUnknown},
		"conflict":    {apierrors.NewConflict(deployments, "web", nil), ""},
		"too many":    {apierrors.NewTooManyRequests("later", 1), ""},
		"unavailable": {apierrors.NewServiceUnavailable("later"), ""},
		"network":     {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := refusalOf(c.err)
			if c.want == "" {
				assert.Nil(t, d)
				assert.Equal(t, c.err, err)
				return
			}
			require.NotNil(t, d)
			assert.NoError(t, err)
			assert.Equal(t, c.want, d.Cause, d.Message)
			assert.NotEmpty(t, d.Fix)
		})
	}
}

func TestRevision_RefusedByWebhook(t *testing.T) {
	f := newController(t, nil)
	refused := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": connection refused`))
	}}
	live, ok := f.cluster.(client.WithWatch)
	require.True(t, ok)
	f.store.Live = interceptor.NewClient(live, refused)
	var m made
	number, err := f.revisionOr(t.Context(), app(""), &m)
	require.NoError(t, err)
	assert.Zero(t, number)
	require.NotNil(t, m.refusal)
	assert.Equal(t, runnerapi.CauseAdmissionRefused, m.refusal.Cause)
	assert.Contains(t, m.refusal.Message, "webhook guard.example.com of the cluster does not answer")
	assert.Contains(t, m.refusal.Fix, "bring webhook guard.example.com back")
}

func TestRefuseSpec_NamesFields(t *testing.T) {
	f := newController(t, nil)
	refuse := func(a *v1alpha1.App) *runnerapi.Diagnosis {
		d, err := f.refuseSpec(t.Context(), a)
		require.NoError(t, err)
		return d
	}
	assert.Nil(t, refuse(app("")))
	d := refuse(app("", func(a *v1alpha1.App) { a.Name, a.Spec.Ports = "Web", []runnerapi.Port{{Port: 80}, {Port: 80}} }))
	require.NotNil(t, d)
	assert.Equal(t, runnerapi.CauseInvalidSpec, d.Cause)
	assert.Contains(t, d.Fix, "metadata.name")
	assert.Contains(t, d.Fix, "spec.ports")
	d = refuse(app("", func(a *v1alpha1.App) { a.Namespace = "kube-system" }))
	require.NotNil(t, d)
	assert.Equal(t, "namespace/kube-system", d.Object)
}

func TestTroubles_ReportedWhenLasting(t *testing.T) {
	var all troubles
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	assert.Nil(t, all.note(name, errors.New("down"), began))
	assert.Nil(t, all.note(name, errors.New("down"), began.Add(passesIn-1)), "it may pass")
	d := all.note(name, errors.New("down"), began.Add(passesIn))
	require.NotNil(t, d)
	assert.Contains(t, d.Message, "since 2026-05-04T03:02:01Z: down")
	assert.NotNil(t, all.note(name, apierrors.NewBadRequest("wrong"), began), "no retry helps")

	f := newController(t, nil)
	f.troubles.of = all.of
	for _, c := range []struct {
		before runnerapi.Phase
		serves bool
		want   runnerapi.Phase
	}{
		{runnerapi.PhaseHealthy, true, runnerapi.PhaseDegraded},
		{runnerapi.PhaseProgressing, false, runnerapi.PhaseFailed},
	} {
		s := v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: c.before, WaitingFor: "pods"}}
		f.overlay(name, &s, c.serves)
		assert.Equal(t, c.want, s.Phase)
		assert.Empty(t, s.WaitingFor)
	}
	worse := v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseFailed, Diagnosis: &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop}}}
	f.overlay(name, &worse, false)
	assert.Equal(t, runnerapi.CauseCrashLoop, worse.Diagnosis.Cause)
	assert.True(t, f.troubles.clear(name))
	assert.False(t, f.troubles.clear(name), "it was reported that it ended")
}

func TestReconcile_ReportsError(t *testing.T) {
	a := app("")
	f := newController(t, nil, a)
	name := client.ObjectKeyFromObject(a)
	temporary := apierrors.NewServiceUnavailable("etcd is away")
	_, err := f.conclude(t.Context(), a, reconcile.Result{}, temporary)
	assert.Equal(t, error(temporary), err, "it may pass")
	f.now = f.now.Add(passesIn)
	_, err = f.conclude(t.Context(), a, reconcile.Result{}, temporary)
	require.NoError(t, err)
	require.NotNil(t, a.Status.Diagnosis)
	assert.Contains(t, a.Status.Diagnosis.Message, "etcd is away")
	result, err := f.conclude(t.Context(), a, reconcile.Result{}, nil)
	require.NoError(t, err)
	assert.NotZero(t, result.RequeueAfter, "the status still has the error")
	assert.Nil(t, f.troubles.diagnosis(name))

	_, err = f.holdUp(t.Context(), a, apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no changes today")))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseDeleting, a.Status.Phase)
	assert.Contains(t, a.Status.WaitingFor, "no changes today")
}

func TestRemove_NamesWhatRemains(t *testing.T) {
	a := app("")
	own := &appsv1.Deployment{ObjectMeta: workload.ChildMeta(a)}
	own.UID, own.Finalizers = "deployment", []string{"example.com/hold"}
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	f := newController(t, nil, a, own, foreign)
	for range 2 {
		left, err := f.takeDown(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, left.waits, 1, "what is not its own stays")
		require.NoError(t, f.cluster.Get(t.Context(), client.ObjectKeyFromObject(own), own))
		if own.DeletionTimestamp.IsZero() {
			t.Fatal("it is being deleted")
		}
	}
	assert.Equal(t, "deployment/web to go, which finalizer example.com/hold holds", goingObject(own))

	many := summed([]diagnose.Remaining{{Waits: "1", Recheck: time.Minute}, {Waits: "2", Recheck: time.Second}, {Waits: "3"}, {Waits: "4"}, {Waits: "5"}})
	assert.Equal(t, remains{waits: []string{"1", "2", "3", "2 more pods"}, recheck: time.Second}, many)
	a.Finalizers = []string{"example.com/hold"}
	_, err := f.remove(t.Context(), a)
	require.NoError(t, err)
	assert.Equal(t, "finalizers of others on the App: example.com/hold", a.Status.WaitingFor)
}

func TestStatus_WaitsFor(t *testing.T) {
	deployment := func(change func(*appsv1.DeploymentStatus)) made {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
		d.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
		change(&d.Status)
		return made{workload: d}
	}
	pods := make([]*corev1.Pod, 2)
	for i := range pods {
		pods[i] = &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	}
	for want, c := range map[string]struct {
		made made
		f    diagnose.Finding
		pods []*corev1.Pod
	}{
		"":                                   {deployment(func(*appsv1.DeploymentStatus) {}), diagnose.Finding{}, pods},
		"its objects to be created":          {made{}, diagnose.Finding{}, nil},
		"Kubernetes to take the newest spec": {made{workload: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}}}, diagnose.Finding{}, nil},
		"init container db":                  {deployment(func(*appsv1.DeploymentStatus) {}), diagnose.Finding{Initializing: "init container db"}, pods},
		"pods of the newest spec: 1 of 2 are there":      {deployment(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }), diagnose.Finding{}, pods},
		"1 of 2 pods to become ready":                    {deployment(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 }), diagnose.Finding{}, pods},
		"1 of 2 pods of the newest spec to become ready": {deployment(func(*appsv1.DeploymentStatus) {}), diagnose.Finding{}, pods[:1]},
		"pods of an older spec to stop":                  {deployment(func(s *appsv1.DeploymentStatus) { s.Replicas = 3 }), diagnose.Finding{}, pods},
		"a try":                                          {deployment(func(*appsv1.DeploymentStatus) {}), diagnose.Finding{Waiting: "a try"}, pods},
		"2 of 2 pods to stay ready for a moment":         {deployment(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 0 }), diagnose.Finding{}, pods},
	} {
		assert.Equal(t, want, waitsFor(app(""), c.made, c.pods, runnerapi.PhaseProgressing, c.f))
		assert.Empty(t, waitsFor(app(""), c.made, c.pods, runnerapi.PhaseHealthy, c.f))
	}
	pods[1] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}}}
	assert.Contains(t, orWaiting(pods, "a pod"), "a pod; container web of pod web-1: ")
}

func TestStatus_SuspendedSchedule(t *testing.T) {
	f := newController(t, nil)
	f.router = &ingress.Router{}
	for suspended, want := range map[bool]string{false: runnerapi.ReasonScheduleApplies, true: runnerapi.ReasonSuspended} {
		a := app(runnerapi.TypeCronJob, func(a *v1alpha1.App) { a.Spec.Schedule = &runnerapi.Schedule{Suspended: suspended} })
		var s v1alpha1.Status
		_, err := f.conditions(t.Context(), a, made{workload: &batchv1.CronJob{}}, &s)
		require.NoError(t, err)
		require.Len(t, s.Conditions, 1)
		assert.Equal(t, want, s.Conditions[0].Reason)
	}
}

func TestStatus_BoundsUnannounced(t *testing.T) {
	a := app("")
	f := newController(t, nil, a)
	for n := range 3 * events.KeptTransitions {
		s := *a.Status.DeepCopy()
		s.Phase, s.ObservedGeneration = runnerapi.PhaseHealthy, int64(n+1)
		a.Generation = s.ObservedGeneration
		require.NoError(t, f.writeStatus(t.Context(), a, s))
	}
	assert.Len(t, a.Status.Unannounced, events.KeptTransitions)
}

func TestStatus_PhaseOfRuns(t *testing.T) {
	job := func(how batchv1.JobConditionType) []*batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web-push"}}
		if how != "" {
			j.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue}}
		}
		return []*batchv1.Job{j}
	}
	crash, never := diagnose.Finding{Diagnosis: &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop}}, diagnose.Finding{Diagnosis: &runnerapi.Diagnosis{Cause: runnerapi.CauseNeverDue}}
	for name, c := range map[string]struct {
		kind runnerapi.AppType
		jobs []*batchv1.Job
		f    diagnose.Finding
		want runnerapi.Phase
	}{
		"Job runs":           {runnerapi.TypeJob, job(""), diagnose.Finding{}, runnerapi.PhaseProgressing},
		"Job succeeded":      {runnerapi.TypeJob, job(batchv1.JobComplete), diagnose.Finding{}, runnerapi.PhaseHealthy},
		"Job tries again":    {runnerapi.TypeJob, job(""), crash, runnerapi.PhaseProgressing},
		"Job failed":         {runnerapi.TypeJob, job(batchv1.JobFailed), crash, runnerapi.PhaseFailed},
		"CronJob not due":    {runnerapi.TypeCronJob, nil, diagnose.Finding{}, runnerapi.PhaseHealthy},
		"CronJob never due":  {runnerapi.TypeCronJob, nil, never, runnerapi.PhaseFailed},
		"CronJob run failed": {runnerapi.TypeCronJob, job(batchv1.JobFailed), crash, runnerapi.PhaseFailed},
		"Pipeline at end":    {runnerapi.TypePipeline, job(batchv1.JobComplete), diagnose.Finding{}, runnerapi.PhaseHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			a := app(c.kind, pipeline)
			w := workload.Blank(c.kind)
			if len(c.jobs) > 0 && c.kind != runnerapi.TypeCronJob {
				w = c.jobs[0]
			}
			assert.Equal(t, c.want, phase(a, made{workload: w}, nil, c.jobs, c.f))
		})
	}
	a := app("", func(a *v1alpha1.App) { a.Spec.Paused = new(true) })
	assert.Equal(t, runnerapi.PhasePaused, phase(a, made{}, nil, nil, crash))
}

func TestConverge_FollowsSpec(t *testing.T) {
	a := app(runnerapi.TypeDeployment, func(a *v1alpha1.App) { a.Spec.Ports = []runnerapi.Port{{Name: "http", Port: 8080}} })
	f := newController(t, nil, a)
	ctx := t.Context()
	require.NoError(t, f.label(ctx, a))
	assert.Empty(t, a.Finalizers, "kubectl must not wait for an agent")
	assert.Equal(t, objectmeta.AppLabels("web"), a.Labels)
	m, err := f.converge(ctx, a)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"deployment/web", "service/web"}, m.objects)
	var s v1alpha1.Status
	restarted := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 2}}}}
	count(&s, a, m.workload, []*corev1.Pod{restarted}, nil)
	assert.Equal(t, int32(2), s.Restarts)
	assert.Equal(t, int32(1), s.DesiredReplicas)
	assert.NotEmpty(t, s.URLs)

	a.Spec.Ports = nil
	m, err = f.converge(ctx, a)
	require.NoError(t, err)
	assert.Equal(t, []string{"deployment/web"}, m.objects)
	assert.True(t, apierrors.IsNotFound(f.cluster.Get(ctx, client.ObjectKeyFromObject(a), &corev1.Service{})), "what is no longer wanted is removed")

	a.Status.Made, a.Status.Stopped = m.objects, &v1alpha1.Stopped{Generation: 1, Diagnosis: runnerapi.Diagnosis{Cause: "crash_loop"}}
	m, err = f.converge(ctx, a)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.Cause("crash_loop"), m.refusal.Cause)
	assert.Zero(t, *m.workload.(*appsv1.Deployment).Spec.Replicas, "an App that never was healthy has no pods")

	a.Spec.Paused = new(true)
	m, err = f.converge(ctx, a)
	require.NoError(t, err)
	assert.NotNil(t, m.workload)
	assert.Empty(t, m.objects, "a paused App is left alone")
}
