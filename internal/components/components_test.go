package components_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

// repositoryOf serves the real charts as one chart repository, which stands for all of upstream's.
func repositoryOf(t *testing.T) *httptest.Server {
	t.Helper()
	directory := charts.Directory(t)
	index := "apiVersion: v1\nentries:\n"
	for _, c := range components.All() {
		for _, chart := range c.Charts {
			if chart.IsOwn() {
				continue
			}
			index += fmt.Sprintf("  %s:\n  - version: %s\n    urls: [%s-%s.tgz]\n", chart.Name, chart.Version, chart.Name, chart.Version)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index.yaml" {
			_, _ = io.WriteString(w, index)
			return
		}
		http.ServeFile(w, r, filepath.Join(directory, filepath.Base(r.URL.Path)))
	}))
	t.Cleanup(s.Close)
	return s
}

func installer(t *testing.T, env *kubetest.Env) *components.Installer {
	t.Helper()
	s := repositoryOf(t)
	client, err := kubernetes.NewForConfig(env.Admin)
	require.NoError(t, err)
	return &components.Installer{Config: env.Admin, Client: client, Charts: components.Source{
		Mirror: s.URL,
		Fetch: repository.New(repository.Options{
			HTTPHosts: []string{"127.0.0.1"}, Guard: egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost},
		}),
	}}
}

func planned(t *testing.T, i *components.Installer, s components.Settings) components.Plan {
	t.Helper()
	cluster, err := components.Look(t.Context(), i.Client)
	require.NoError(t, err)
	plan, err := components.NewPlan(cluster, s)
	require.NoError(t, err)
	return plan
}

func actions(p components.Plan) map[string]components.Action {
	all := map[string]components.Action{}
	for _, s := range p.Steps {
		all[s.Component] = s.Action
	}
	return all
}

// onlyTheseReadSecrets asks Kubernetes for each ServiceAccount whether it may read the Secrets of
// all namespaces: those may whose work is certificates.
func onlyTheseReadSecrets(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	accounts, err := client.CoreV1().ServiceAccounts("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var may []string
	for _, a := range accounts.Items {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + a.Namespace + ":" + a.Name,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		if review.Status.Allowed && a.Namespace != "kube-system" {
			may = append(may, a.Namespace+"/"+a.Name)
		}
	}
	assert.ElementsMatch(t, []string{"cert-manager/cert-manager", "cert-manager/cert-manager-cainjector", "istio-system/istiod", "istio-system/istio-reader-service-account", "nginx-ingress/nginx-ingress"}, may)
}

// TestInstall_RealCharts installs, upgrades and removes them on a real API server.
func TestInstall_RealCharts(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	var all components.Settings
	all.Choose(components.Names(), components.Always)
	plan := planned(t, i, all)
	for name, action := range actions(plan) {
		assert.Equal(t, components.Install, action, name)
	}
	t.Cleanup(func() { removeAll(t, i) })
	require.NoError(t, i.Apply(t.Context(), plan))

	for _, name := range []string{"prometheus-server", "loki"} { // to which the values of others refer
		_, err := i.Client.CoreV1().Services("monitoring").Get(t.Context(), name, metav1.GetOptions{})
		assert.NoError(t, err, name)
	}
	costsAreReadBack(t, i.Client)
	onlyTheseReadSecrets(t, i.Client)

	// The agent was reinstalled, without the Secret with which it opens its port of metrics.
	require.NoError(t, i.Client.CoreV1().Secrets("pipeops").Delete(t.Context(), "pipeops-alerts", metav1.DeleteOptions{}))
	again := planned(t, i, all)
	for name, action := range actions(again) {
		assert.Equal(t, components.Keep, action, name)
	}
	require.NoError(t, i.Apply(t.Context(), again))
	_, err := i.Client.CoreV1().Secrets("pipeops").Get(t.Context(), "pipeops-alerts", metav1.GetOptions{})
	require.NoError(t, err)

	all.Components["grafana"] = components.Setting{Mode: components.Always, Values: map[string]map[string]any{"grafana": {"replicas": 2}}}
	changed := planned(t, i, all)
	assert.Equal(t, components.Upgrade, actions(changed)["grafana"])
	require.NoError(t, i.Apply(t.Context(), changed))
	d, err := i.Client.AppsV1().Deployments("monitoring").Get(t.Context(), "grafana", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, *d.Spec.Replicas)
}

// costsAreReadBack checks that Prometheus scrapes OpenCost, and that OpenCost asks Prometheus.
func costsAreReadBack(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	opencost, err := client.CoreV1().Services("monitoring").Get(t.Context(), "opencost", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "true", opencost.Annotations["prometheus.io/scrape"])
	assert.Equal(t, fmt.Sprint(opencost.Spec.Ports[0].Port), opencost.Annotations["prometheus.io/port"])
	d, err := client.AppsV1().Deployments("monitoring").Get(t.Context(), "opencost", metav1.GetOptions{})
	require.NoError(t, err)
	env := map[string]string{}
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	prometheus, err := client.CoreV1().Services("monitoring").Get(t.Context(), "prometheus-server", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("http://prometheus-server.monitoring.svc.cluster.local:%d", prometheus.Spec.Ports[0].Port), env["PROMETHEUS_SERVER_ENDPOINT"])
	assert.Equal(t, []string{"false", "true"}, []string{env["EMIT_KSM_V1_METRICS"], env["EMIT_KSM_V1_METRICS_ONLY"]}, "no series are there twice")
}

func removeAll(t *testing.T, i *components.Installer) {
	t.Helper()
	cluster, err := components.Look(context.Background(), i.Client)
	require.NoError(t, err)
	for name := range cluster.Installed {
		require.NoError(t, i.Remove(context.Background(), cluster, name))
	}
	cluster, err = components.Look(context.Background(), i.Client)
	require.NoError(t, err)
	assert.Empty(t, cluster.Installed)
	left, err := i.Client.AppsV1().Deployments("monitoring").List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
}

func TestInstall_KeepsExisting(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/theirs"}}
	_, err := i.Client.NetworkingV1().IngressClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = i.Client.NetworkingV1().IngressClasses().Delete(context.Background(), "theirs", metav1.DeleteOptions{})
	})
	var s components.Settings
	s.Choose([]string{"ingress"}, components.Auto)
	plan := planned(t, i, s)
	assert.Equal(t, components.Skip, actions(plan)["ingress"])
	assert.Contains(t, reason(plan, "ingress"), "the cluster has IngressClass theirs")
	assert.Contains(t, reason(plan, "vpa"), "it was not asked for")
}

// TestStorage_OnlyWithoutDefaultClass has storage classes that are not the default.
func TestStorage_OnlyWithoutDefaultClass(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	classes := i.Client.StorageV1().StorageClasses()
	theirs := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Provisioner: "example.com/disks"}
	theirs, err := classes.Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), "theirs", metav1.DeleteOptions{}) })
	var s components.Settings
	s.Choose([]string{"storage"}, components.Auto)
	plan := planned(t, i, s)
	require.Equal(t, components.Install, actions(plan)["storage"])
	t.Cleanup(func() { removeAll(t, i) })
	require.NoError(t, i.Apply(t.Context(), plan))
	made, err := classes.Get(t.Context(), "local-path", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "true", made.Annotations["storageclass.kubernetes.io/is-default-class"])
	assert.Equal(t, components.Keep, actions(planned(t, i, s))["storage"], "its own class is not a reason to leave it out")

	removeAll(t, i)
	theirs.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	_, err = classes.Update(t.Context(), theirs, metav1.UpdateOptions{})
	require.NoError(t, err)
	plan = planned(t, i, s)
	assert.Equal(t, components.Skip, actions(plan)["storage"])
	assert.Contains(t, reason(plan, "storage"), "the cluster has the default StorageClass theirs")
}

func reason(p components.Plan, name string) string {
	for _, s := range p.Steps {
		if s.Component == name {
			return s.Reason
		}
	}
	return ""
}

// TestInstall_ForeignReleaseUntouched sets the component to be always installed.
func TestInstall_ForeignReleaseUntouched(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Always)
	plan := planned(t, i, s)
	require.NoError(t, i.Apply(t.Context(), plan))
	t.Cleanup(func() { removeAll(t, i) })
	secrets := i.Client.CoreV1().Secrets("vpa")
	relabel := func(component string) {
		record, err := secrets.Get(context.Background(), "sh.helm.release.v1.vertical-pod-autoscaler.v1", metav1.GetOptions{})
		require.NoError(t, err)
		record.Labels["pipeops.io/component"] = component
		_, err = secrets.Update(context.Background(), record, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	relabel("theirs")
	defer relabel("vpa")
	err := i.Apply(t.Context(), planned(t, i, s))
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Conflict, known.Code)
	assert.Contains(t, err.Error(), "belongs to another client")
}

func TestMonitoring_SizedByMemory(t *testing.T) {
	var s components.Settings
	s.Choose([]string{"prometheus", "vpa"}, components.Auto)
	for memory, want := range map[int64]components.Action{1 << 30: components.Skip, 2 << 30: components.Install, 8 << 30: components.Install} {
		plan, err := components.NewPlan(components.Cluster{Memory: memory}, s)
		require.NoError(t, err)
		assert.Equal(t, want, actions(plan)["prometheus"], memory)
		assert.Equal(t, components.Install, actions(plan)["vpa"], memory)
		assert.Equal(t, memory < 3<<30, plan.Small)
	}
}

func TestSettings_NamesMistakes(t *testing.T) {
	for text, field := range map[string]string{
		"components: {ingres: {}}":                                "components.ingres",
		"components: {ingress: {mode: sometimes}}":                "components.ingress.mode",
		"components: {ingress: {values: {nginx: {replicas: 2}}}}": "components.ingress.values.nginx",
	} {
		_, err := components.ReadSettings([]byte(text))
		known := &problem.Error{}
		require.ErrorAs(t, err, &known, text)
		assert.Equal(t, field, known.Field)
	}
	_, err := components.ReadSettings([]byte("component: {}"))
	require.ErrorContains(t, err, "component")
}

// TestSettings_DocumentedExample takes the settings from docs/cluster-owner/components.md.
func TestSettings_DocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/cluster-owner/components.md")
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(page), "```yaml\n")
	require.True(t, ok)
	example, _, _ = strings.Cut(example, "```")
	s, err := components.ReadSettings([]byte(example))
	require.NoError(t, err)
	assert.Equal(t, components.Always, s.Components["ingress"].Mode)
	for _, name := range components.Names() {
		assert.Contains(t, string(page), "| `"+name+"` |")
	}
}

func TestChosen(t *testing.T) {
	names, err := components.Chosen("full")
	require.NoError(t, err)
	assert.NotContains(t, names, "istio")
	names, err = components.Chosen("istio,vpa")
	require.NoError(t, err)
	assert.Equal(t, []string{"istio", "vpa"}, names)
	_, err = components.Chosen("everything")
	require.ErrorContains(t, err, `there is no component "everything"`)
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte("components: {ingress: {mode: auto, values: {nginx-ingress: {a: 1}}}}"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = components.ReadSettings(data) })
}
