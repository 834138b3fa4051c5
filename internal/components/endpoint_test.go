package components_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func service(namespace, name, ip string, ports ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "loki"}},
		Spec:       corev1.ServiceSpec{ClusterIP: ip},
	}
	for i, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p, Port: int32(3100 + i)})
	}
	return s
}

// listing is a client of a fake API server, which lists Services and nothing else.
func listing(t *testing.T, services ...*corev1.Service) kubernetes.Interface {
	t.Helper()
	list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
	for _, s := range services {
		list.Items = append(list.Items, *s)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/api/v1/services", r.URL.Path)
		assert.Equal(t, "app.kubernetes.io/name=loki", r.URL.Query().Get("labelSelector"))
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	}))
	t.Cleanup(server.Close)
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return api
}

// TestEndpoint_OfComponent is of Services as the charts make them, and of others.
func TestEndpoint_OfComponent(t *testing.T) {
	external := service("shop", "loki", "10.0.0.9", "http-metrics")
	external.Spec.Type = corev1.ServiceTypeExternalName
	for name, c := range map[string]struct {
		services []*corev1.Service
		url      string
	}{
		"none": {nil, ""},
		"the chart's": {[]*corev1.Service{
			service("monitoring", "loki-headless", "None", "http-metrics"), service("monitoring", "loki", "10.0.0.1", "grpc", "http-metrics"),
			service("monitoring", "loki-memberlist", "None", "tcp"),
		}, "http://10.0.0.1:3101"},
		"its own namespace first": {[]*corev1.Service{
			service("logs", "loki", "10.0.0.2", "http-metrics"), service("monitoring", "loki", "fd00::1", "http-metrics"),
		}, "http://[fd00::1]:3100"},
		"another namespace":        {[]*corev1.Service{service("logs", "loki", "10.0.0.2", "http-metrics")}, "http://10.0.0.2:3100"},
		"a Runner's":               {[]*corev1.Service{service("shop-managed", "loki", "10.0.0.3", "http-metrics")}, ""},
		"a name of another":        {[]*corev1.Service{external}, ""},
		"a port of something else": {[]*corev1.Service{service("monitoring", "loki", "10.0.0.1", "ssh")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := components.FindEndpoint(t.Context(), listing(t, c.services...), "loki", func(namespace string) (bool, error) { return namespace != "shop-managed", nil })
			require.NoError(t, err)
			if c.url == "" {
				assert.Nil(t, at)
				return
			}
			require.NotNil(t, at)
			assert.Equal(t, c.url, at.URL)
		})
	}
	_, err := components.FindEndpoint(t.Context(), listing(t), "istio", nil)
	require.ErrorContains(t, err, "istio has no API")
}
