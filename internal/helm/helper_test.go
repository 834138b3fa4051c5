package helm_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

const production = "production" // the managed namespace of test/kubetest/production.yaml

const patience = 5 * time.Minute

var byTest = runnerapi.ReleaseOptions{WriteOptions: runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "tester", RequestID: "req-1"}}}

func TestMain(m *testing.M) {
	render.Child()
	if path := os.Getenv(victimKubeconfig); path != "" {
		os.Exit(beKilled(path))
	}
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

// start is the agent's releases, with exactly the rights of its manifest.
func start(t *testing.T, config *rest.Config, change ...func(*helm.Options)) *helm.Releases {
	t.Helper()
	opts := helm.Options{Namespace: kubetest.AgentNamespace, Replica: "agent-1", Render: rendertest.Process(t), Log: zerolog.New(zerolog.NewTestWriter(t))}
	for _, c := range change {
		c(&opts)
	}
	r := helm.New(config, opts)
	await.Background(t, "the agent's releases", r.Run)
	return r
}

// releases is start in a cluster where nothing runs pods. It removes the named releases after the
// test.
func releases(t *testing.T, names ...string) (*kubetest.Env, *helm.Releases) {
	t.Helper()
	env := kubetest.ControlPlane(t)
	r := start(t, env.Agent)
	remove(t, env, names...)
	return env, r
}

func key(name string) runnerapi.Key { return runnerapi.Key{Namespace: production, Name: name} }

// pack is a chart's archive; of a chart called guide when files do not say otherwise.
func pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	all := map[string]string{"Chart.yaml": "apiVersion: v2\nname: guide\nversion: 1.0.0\n"}
	maps.Copy(all, files)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, "guide/"+name, all[name])
	}
	return rendertest.Archive(t, pairs...)
}

// guide is a chart of a Service.
func guide(t testing.TB) []byte {
	return pack(t, map[string]string{"templates/guide.yaml": `apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
  annotations: {greeting: {{ .Values.greeting | default "none" | quote }}}
spec: {ports: [{port: 80}]}
{{- if .Values.second }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-second}
spec: {ports: [{port: 80}]}
{{- end }}
`})
}

// slow is a chart whose Deployment never becomes ready where nothing runs pods.
func slow(t testing.TB) []byte {
	return pack(t, map[string]string{"templates/slow.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: c, image: registry.example.com/shop/web:1}]}
`})
}

func of(archive []byte, values map[string]any) runnerapi.ReleaseSpec {
	return runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: archive}, Values: values}
}

// deploy puts a release and waits for its outcome.
func deploy(t *testing.T, r *helm.Releases, name string, spec runnerapi.ReleaseSpec) runnerapi.Release {
	t.Helper()
	_, err := r.Deploy(t.Context(), key(name), spec, byTest)
	require.NoError(t, err)
	return outcome(t, r, name)
}

func outcome(t *testing.T, r *helm.Releases, name string) runnerapi.Release {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	release, err := r.Wait(ctx, key(name))
	require.NoError(t, err)
	require.False(t, release.Busy(), "%+v", release.Operation)
	return release
}

// remove takes away what a test has made, whoever it was.
func remove(t *testing.T, env *kubetest.Env, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range names {
			_, err := env.Cluster.Kubectl(context.Background(), "-n", production, "delete", "--ignore-not-found", "--wait=false",
				"service/"+name, "service/"+name+"-second", "deployment/"+name, "configmap/pipeops-release-"+name)
			assert.NoError(t, err)
			_, err = env.Cluster.Kubectl(context.Background(), "-n", production, "delete", "secrets", "-l", "owner=helm,name="+name)
			assert.NoError(t, err)
		}
	})
}

var problemOf = problemtest.Of

func service(t *testing.T, env *kubetest.Env, name string) (*corev1.Service, error) {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: name}}
	return s, env.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s)
}

// revisions are Helm's Secrets of a release.
func revisions(t *testing.T, env *kubetest.Env, name string) []corev1.Secret {
	t.Helper()
	list := &corev1.SecretList{}
	require.NoError(t, env.Client.List(t.Context(), list, client.InNamespace(production), client.MatchingLabels{"owner": "helm", "name": name}))
	return list.Items
}

func driverOf(env *kubetest.Env) *driver.Secrets {
	return driver.NewSecrets(kubernetes.NewForConfigOrDie(env.Admin).CoreV1().Secrets(production))
}

// storedAs returns a revision as the helm program reads it.
func storedAs(t *testing.T, env *kubetest.Env, name string, revision int) *release.Release {
	t.Helper()
	got, err := driverOf(env).Get(fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision))
	require.NoError(t, err)
	rel, ok := got.(*release.Release)
	require.True(t, ok)
	return rel
}
