package app_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// looseCRD has the cluster take any spec, as one with an older resource would,
// until it is tightened again.
func looseCRD(t *testing.T, env *kubetest.Env) (tighten func()) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.CRDName}, crd))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(t, err)
	replace := func(versions []any) {
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": versions}})
		require.NoError(t, err)
		require.NoError(t, env.Client.Patch(context.Background(), crd, client.RawPatch(k8stypes.MergePatchType, raw)))
	}
	loose, _, err := unstructured.NestedSlice(crd.DeepCopy().Object, "spec", "versions")
	require.NoError(t, err)
	loose[0].(map[string]any)["schema"] = map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}
	replace(loose)
	tighten = func() { replace(versions) }
	t.Cleanup(tighten)
	return tighten
}

// TestInvalidSpec_ReportedInStatus has Apps that the API would have refused, written with kubectl.
func TestInvalidSpec_ReportedInStatus(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := startWith(t, everywhere(env))
	sound, born := key(ns, "sound"), key(ns, "born-wrong")
	deploy(t, e, sound, web())
	rollOut(t, env, sound)
	eventually(t, "it is sound", func() bool { return phaseOf(t, e, sound) == runnerapi.PhaseHealthy })

	wrong := web()
	wrong.Image = "example.com/web:2"
	wrong.Resources.Requests.Memory, wrong.Resources.Limits.Memory = "2Gi", "1Gi"
	tighten := looseCRD(t, env)
	eventually(t, "the cluster takes it", func() bool {
		err := env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: born.Name}, Spec: wrong})
		require.True(t, err == nil || apierrors.IsInvalid(err), "%v", err)
		return err == nil
	})
	turned := get(t, env, sound, &v1alpha1.App{})
	turned.Spec = wrong
	require.NoError(t, env.Client.Update(t.Context(), turned))
	tighten()
	for _, k := range []runnerapi.Key{sound, born} {
		eventually(t, "the App says what is wrong", func() bool {
			a, err := e.Get(t.Context(), k)
			return err == nil && a.Status.Diagnosis != nil && a.Status.Diagnosis.Cause == runnerapi.CauseInvalidSpec
		})
		a, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		assert.Equal(t, "resources.requests.memory: the request is more than the limit", a.Status.Diagnosis.Message)
		assert.Equal(t, "correct spec.resources.requests.memory", a.Status.Diagnosis.Fix)
		assert.Equal(t, "app/"+k.Name, a.Status.Diagnosis.Object)
	}
	assert.Equal(t, runnerapi.PhaseDegraded, phaseOf(t, e, sound), "what ran runs on")
	assert.Equal(t, web().Image, get(t, env, sound, &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Image)
	assert.Equal(t, runnerapi.PhaseFailed, phaseOf(t, e, born))
	assert.False(t, exists(t, env, born, &appsv1.Deployment{}))

	for _, k := range []runnerapi.Key{sound, born} {
		kubectl(t, env, "-n", ns, "patch", "apps.pipeops.io", k.Name, "--type=merge", "-p", `{"spec":{"resources":{"requests":{"memory":"512Mi"}}}}`)
		eventually(t, "corrected, it is rolled out", func() bool {
			d := &appsv1.Deployment{}
			return exists(t, env, k, d) && d.Spec.Template.Spec.Containers[0].Image == wrong.Image
		})
		rollOut(t, env, k)
		eventually(t, "and healthy", func() bool { return phaseOf(t, e, k) == runnerapi.PhaseHealthy })
	}
}

// TestInvalidSpec_FoundByCluster is of a spec that only Kubernetes itself can
// tell to be wrong.
func TestInvalidSpec_FoundByCluster(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	k := key(ownNamespace(t, env), "nightly")
	e, _ := start(t, env, k.Namespace, nil)
	spec := runnerapi.AppSpec{
		Image: "example.com/web:1", Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "0 25 * * *", TimeZone: "Etc/UTC"},
	}
	_, err := e.Deploy(t.Context(), k, spec, runnerapi.WriteOptions{DryRun: true})
	assert.Equal(t, runnerapi.CodeInvalid, code(err), "a dry run asks the cluster")
	deploy(t, e, k, spec)
	eventually(t, "the App says what is wrong", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseFailed && a.Status.Diagnosis != nil &&
			a.Status.Diagnosis.Cause == runnerapi.CauseInvalidSpec
	})
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Contains(t, a.Status.Diagnosis.Message, "schedule")
	t.Logf("%s; fix: %s", a.Status.Diagnosis.Message, a.Status.Diagnosis.Fix)
	kubectl(t, env, "-n", k.Namespace, "patch", "apps.pipeops.io", k.Name, "--type=merge", "-p", `{"spec":{"schedule":{"cron":"0 5 * * *"}}}`)
	eventually(t, "corrected, it is made", func() bool { return exists(t, env, k, &batchv1.CronJob{}) })
	eventually(t, "and healthy again", func() bool { return phaseOf(t, e, k) != runnerapi.PhaseFailed })
}

func phaseOf(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Phase {
	t.Helper()
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	return a.Status.Phase
}
