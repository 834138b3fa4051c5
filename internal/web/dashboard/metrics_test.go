package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// through has the Services of a fake and the addresses of a real API server.
type through struct {
	kubernetes.Interface
	addresses rest.Interface
}

// CoreV1 implements kubernetes.Interface.
func (t through) CoreV1() corev1client.CoreV1Interface {
	return coreThrough{t.Interface.CoreV1(), t.addresses}
}

type coreThrough struct {
	corev1client.CoreV1Interface
	addresses rest.Interface
}

// RESTClient implements corev1client.CoreV1Interface.
func (c coreThrough) RESTClient() rest.Interface { return c.addresses }

// TestMetrics_ProxiedPrometheus has a server in place of its proxy.
func TestMetrics_ProxiedPrometheus(t *testing.T) {
	r := newRig(t, app("shop", "web"))
	f := monitoringtest.Start(t)
	f.Answer(monitoringtest.QueryRange, func(q url.Values) any {
		if strings.Contains(q.Get("query"), "cpu_usage") {
			return monitoringtest.Matrix(monitoringtest.Series(q, "0.25", map[string]string{"namespace": "shop"}))
		}
		return monitoringtest.Matrix()
	})
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		prefix := "/api/v1/namespaces/monitoring/services/http:prometheus-server:80/proxy"
		paths = append(paths, req.URL.Path)
		http.StripPrefix(prefix, f).ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	service := func(namespace string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus-server", Labels: map[string]string{"app.kubernetes.io/name": "prometheus"}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}
	}
	apps := appcache.New(r.client, r.client, objectmeta.Scope{Agent: "pipeops"}, zerolog.Nop(), time.Now)
	apps.SetReady(true)
	key, hour := runnerapi.Key{Namespace: "shop", Name: "web"}, runnerapi.HistoryOptions{Since: time.Hour, Step: time.Minute}
	read := metricsThrough(server.Client(), through{kubernetesfake.NewClientset(service("monitoring")), api.CoreV1().RESTClient()}, apps)
	history, err := read(t.Context(), key, hour)
	require.NoError(t, err)
	require.Len(t, history.Series, 1)
	assert.Equal(t, runnerapi.MetricCPU, history.Series[0].Metric)
	assert.InDelta(t, 0.25, *history.Series[0].Values[60], 0.001)
	assert.Contains(t, paths[0], "/services/http:prometheus-server:80/proxy/api/v1/query_range")

	_, err = metricsThrough(server.Client(), through{kubernetesfake.NewClientset(service("shop")), api.CoreV1().RESTClient()}, apps)(t.Context(), key, hour)
	assert.Equal(t, runnerapi.CodeNotSupported, unread(err, "").Code, "a Runner could have made it")
}
