package components_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

const (
	vpaChart      = "vertical-pod-autoscaler"
	vpaArchive    = vpaChart + "-0.11.0.tgz"
	vpaDefinition = "verticalpodautoscalers.autoscaling.k8s.io"

	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// removeDefinition deletes a resource definition, if it is there, and waits until it is gone.
func removeDefinition(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	at := definitionsPath + "/" + name
	_ = client.Discovery().RESTClient().Delete().AbsPath(at).Do(context.Background()).Error() // it may not be there
	await.Until(t, "the resource definition is gone", func() bool {
		return apierrors.IsNotFound(client.Discovery().RESTClient().Get().AbsPath(at).Do(context.Background()).Error())
	})
}

// pending leaves Helm's record of VPA as a run does that is at work since then, or was killed.
func pending(t *testing.T, i *components.Installer, since time.Time) {
	t.Helper()
	records := storage.Init(driver.NewSecrets(i.Client.CoreV1().Secrets("vpa")))
	r := &release.Release{
		Name: vpaChart, Namespace: "vpa", Version: 1, Labels: map[string]string{"pipeops.io/component": "vpa"},
		Info:  &release.Info{FirstDeployed: since, LastDeployed: since, Status: common.StatusPendingInstall},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: vpaChart, Version: "0.11.0"}},
	}
	if _, err := records.Get(vpaChart, 1); err == nil {
		require.NoError(t, records.Update(r))
		return
	}
	require.NoError(t, records.Create(r))
}

// fault breaks something, and returns what fixes it.
type fault struct {
	component string                                                   // vpa if empty
	values    map[string]any                                           // of the component's only chart, in the first run
	breaks    func(t *testing.T, i *components.Installer) (fix func()) // if not nil
	code      problem.Code
	says      string
}

// serving has the installer's repository be served by another handler.
func serving(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(*testing.T, *components.Installer) func() {
	return func(t *testing.T, i *components.Installer) func() {
		before := i.Charts.Mirror
		next := repositoryOf(t).Config.Handler
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, next) }))
		t.Cleanup(s.Close)
		i.Charts.Mirror = s.URL
		return func() { i.Charts.Mirror = before }
	}
}

// instead has it be another repository, of this address.
func instead(address func(t *testing.T) string) func(*testing.T, *components.Installer) func() {
	return func(t *testing.T, i *components.Installer) func() {
		before := i.Charts.Mirror
		i.Charts.Mirror = address(t)
		return func() { i.Charts.Mirror = before }
	}
}

func onArchive(do http.HandlerFunc) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, ".tgz") {
			do(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// existing has an object be there that others have made.
func existing(create, remove func(ctx context.Context, client kubernetes.Interface) error) func(*testing.T, *components.Installer) func() {
	return func(t *testing.T, i *components.Installer) func() {
		require.NoError(t, create(t.Context(), i.Client))
		return func() { require.NoError(t, remove(context.Background(), i.Client)) }
	}
}

// ensureNamespace is for faults that need it before the installer makes it.
func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) {
	_, _ = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
}

// TestApply_TriesAllCharts: where nothing can be fetched, each component says so, with the ways
// out.
func TestApply_TriesAllCharts(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	s := httptest.NewServer(nil)
	s.Close()
	i.Charts.Mirror = s.URL
	var settings components.Settings
	settings.Choose([]string{"vpa", "metrics-server"}, components.Always)
	err := i.Apply(t.Context(), planned(t, i, settings))
	require.ErrorContains(t, err, "component vpa: ")
	require.ErrorContains(t, err, "component metrics-server: ")
	said, _ := problem.Of(err)
	require.NotNil(t, said)
	assert.Equal(t, problem.Unavailable, said.Code)
	assert.Contains(t, said.Fix, "--mirror URL, or --charts DIRECTORY")
}

var faults = map[string]fault{
	"the repository is gone": {
		breaks: instead(func(*testing.T) string { s := httptest.NewServer(nil); s.Close(); return s.URL }),
		code:   problem.Unavailable, says: "connection refused",
	},
	"it lacks the version": {
		breaks: serving(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = io.WriteString(w, "apiVersion: v1\nentries:\n  vertical-pod-autoscaler:\n  - version: 0.1.0\n    urls: [a.tgz]\n")
		}),
		says: "0.11.0",
	},
	"the archive is gone": {breaks: serving(onArchive(http.NotFound)), code: problem.Invalid, says: "answered 404"},
	"a page in place of the archive": {
		breaks: serving(onArchive(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Sign in</html>") })),
		code:   problem.Invalid, says: "is not a chart",
	},
	"a wrong digest": {
		breaks: func(*testing.T, *components.Installer) func() {
			return components.SetDigests("vertical-pod-autoscaler-0.11.0: h1:abab\n")
		},
		code: problem.Invalid, says: "this build expects h1:abab",
	},
	"a directory without the archive": {
		breaks: func(t *testing.T, i *components.Installer) func() {
			i.Charts.Directory = t.TempDir()
			return func() { i.Charts.Directory = "" }
		},
		code: problem.NotFound, says: "has no " + vpaArchive,
	},
	"a quota": {
		breaks: existing(func(ctx context.Context, client kubernetes.Interface) error {
			ensureNamespace(ctx, client, "vpa")
			hard := corev1.ResourceList{"count/secrets": resource.MustParse("0")}
			q, err := client.CoreV1().ResourceQuotas("vpa").Create(ctx, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"count/secrets": resource.MustParse("0")}} // a controller's work
			_, err = client.CoreV1().ResourceQuotas("vpa").UpdateStatus(ctx, q, metav1.UpdateOptions{})
			return err
		}, func(ctx context.Context, client kubernetes.Interface) error {
			return client.CoreV1().ResourceQuotas("vpa").Delete(ctx, "none", metav1.DeleteOptions{})
		}),
		says: "quota",
	},
	"a webhook that does not answer yet": {
		breaks: existing(func(ctx context.Context, client kubernetes.Interface) error {
			fail, none, port := admissionv1.Fail, admissionv1.SideEffectClassNone, int32(443)
			_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "not-ready"},
				Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "not-ready.example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
					ClientConfig:      admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "vpa", Name: "none", Port: &port}},
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "vpa"}},
					Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
						APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"},
					}}},
				}},
			}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, client kubernetes.Interface) error {
			return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "not-ready", metav1.DeleteOptions{})
		}),
		says: "webhook",
	},
	"an IngressClass of others": {
		component: "ingress",
		breaks: existing(func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
				ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/theirs"},
			}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, client kubernetes.Interface) error {
			return client.NetworkingV1().IngressClasses().Delete(ctx, "nginx", metav1.DeleteOptions{})
		}),
		code: problem.Conflict, says: `IngressClass "nginx" is there, and belongs to another client`,
	},
	"a StorageClass of others": {
		component: "storage",
		breaks: existing(func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: "example.com/theirs",
			}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, client kubernetes.Interface) error {
			return client.StorageV1().StorageClasses().Delete(ctx, "local-path", metav1.DeleteOptions{})
		}),
		code: problem.Conflict, says: `StorageClass "local-path" is there, and belongs to another client`,
	},
	"a namespace that is being deleted": {
		breaks: existing(func(ctx context.Context, client kubernetes.Interface) error {
			ensureNamespace(ctx, client, "vpa")
			return client.CoreV1().Namespaces().Delete(ctx, "vpa", metav1.DeleteOptions{})
		}, func(ctx context.Context, client kubernetes.Interface) error { // a controller's work
			namespace, err := client.CoreV1().Namespaces().Get(ctx, "vpa", metav1.GetOptions{})
			if err != nil {
				return err
			}
			namespace.Spec.Finalizers = nil
			_, err = client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
			return err
		}),
		code: problem.Busy, says: "namespace vpa is being deleted",
	},
	"resource definitions of another version": {
		breaks: func(t *testing.T, i *components.Installer) func() {
			removeDefinition(t, i.Client, vpaDefinition)
			body := []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + vpaDefinition + `",
				"annotations":{"api-approved.kubernetes.io":"https://github.com/kubernetes/kubernetes/pull/63797"}},
				"spec":{"group":"autoscaling.k8s.io","scope":"Namespaced","names":{"plural":"verticalpodautoscalers","kind":"VerticalPodAutoscaler"},
				"versions":[{"name":"v1beta1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
			require.NoError(t, i.Client.Discovery().RESTClient().Post().AbsPath(definitionsPath).Body(body).Do(t.Context()).Error())
			return func() { removeDefinition(t, i.Client, vpaDefinition) }
		},
		code: problem.Conflict, says: "the resource definition " + vpaDefinition + " is of another version: it lacks v1",
	},
	"values that do not render": {
		values: map[string]any{"recommender": "a text where the chart has a map"},
		code:   problem.Invalid, says: "cannot be rendered with these values",
	},
	"another run at work": {
		breaks: func(t *testing.T, i *components.Installer) func() {
			ensureNamespace(t.Context(), i.Client, "vpa")
			pending(t, i, time.Now())
			return func() { pending(t, i, time.Now().Add(-5*time.Minute)) } // it broke off
		},
		code: problem.Busy, says: "another run is at work on release vertical-pod-autoscaler",
	},
	"no rights for one kind": {
		breaks: func(t *testing.T, i *components.Installer) func() {
			before := i.Config
			i.Config = rest.CopyConfig(before)
			i.Config.Impersonate = rest.ImpersonationConfig{UserName: "without-rights", Groups: []string{"system:authenticated"}}
			return func() { i.Config = before }
		},
		code: problem.Forbidden, says: "without-rights",
	},
	"the API server is away": {
		breaks: func(_ *testing.T, i *components.Installer) func() {
			before := i.Config
			s := httptest.NewServer(nil)
			s.Close()
			i.Config = &rest.Config{Host: s.URL}
			return func() { i.Config = before }
		},
		code: problem.Unavailable, says: "cannot be reached",
	},
}

// TestSetup_FaultsNameCauseAndFix expects that the next run, after the fix, continues from there.
func TestSetup_FaultsNameCauseAndFix(t *testing.T) {
	env := kubetest.ControlPlane(t)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			i := installer(t, env)
			component := f.component
			if component == "" {
				component = "vpa"
			}
			var s, broken components.Settings
			s.Choose([]string{component}, components.Always)
			broken.Choose([]string{component}, components.Always)
			if f.values != nil {
				broken.Components[component] = components.Setting{Mode: components.Always, Values: map[string]map[string]any{vpaChart: f.values}}
			}
			t.Cleanup(func() { removeAll(t, i) })
			fix := func() {}
			if f.breaks != nil {
				fix = f.breaks(t, i)
			}
			err := i.Apply(t.Context(), planned(t, i, broken))
			fix()
			known := &problem.Error{}
			require.ErrorAs(t, err, &known)
			if f.code != "" {
				assert.Equal(t, f.code, known.Code, err)
			}
			assert.Contains(t, err.Error(), f.says)
			assert.NotEmpty(t, known.Fix, err)
			require.NoError(t, i.Apply(t.Context(), planned(t, i, s)), "the next run continues")
			assert.Equal(t, components.Keep, actions(planned(t, i, s))[component])
		})
	}
}

// TestSetup_ContinuesAfterStop stops a run between two components.
func TestSetup_ContinuesAfterStop(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	var s components.Settings
	s.Choose([]string{"storage", "vpa"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	ctx, stop := context.WithCancel(t.Context())
	i.Tell = func(step components.Step) {
		if step.Component == "vpa" {
			stop()
		}
	}
	require.ErrorIs(t, i.Apply(ctx, planned(t, i, s)), context.Canceled)
	i.Tell = nil
	plan := planned(t, i, s)
	assert.Equal(t, components.Keep, actions(plan)["storage"])
	assert.Equal(t, components.Install, actions(plan)["vpa"])
	require.NoError(t, i.Apply(t.Context(), plan))
}

// TestSetup_ContinuesAfterKill kills the process between two objects of a chart. Helm's record then
// says that a run is at work; the next run continues when that record is old.
func TestSetup_ContinuesAfterKill(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	killed := *i
	killed.Config = rest.CopyConfig(i.Config)
	var dead atomic.Bool // for all clients that are made of the configuration
	killed.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/deployments") {
				dead.Store(true)
			}
			if dead.Load() {
				return nil, errors.New("the process was killed")
			}
			return next.RoundTrip(r)
		})
	})
	require.Error(t, killed.Apply(t.Context(), planned(t, i, s)))
	_, err := i.Client.CoreV1().ServiceAccounts("vpa").Get(t.Context(), "vertical-pod-autoscaler-recommender", metav1.GetOptions{})
	require.NoError(t, err, "some objects are there")
	made, err := i.Client.AppsV1().Deployments("vpa").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, made.Items, "and others are not")

	err = i.Apply(t.Context(), planned(t, i, s))
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Busy, known.Code, err)
	assert.Contains(t, known.Fix, "counts as interrupted after 4m")
	pending(t, i, time.Now().Add(-5*time.Minute))
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))
	assert.Equal(t, components.Keep, actions(planned(t, i, s))["vpa"])
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
