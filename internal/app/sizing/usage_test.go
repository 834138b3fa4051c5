package sizing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestUseOfApps sums up the pods of each App, and leaves out those of others.
func TestUseOfApps(t *testing.T) {
	scheme, err := appcache.NewScheme()
	require.NoError(t, err)
	pod := func(namespace, name string, labels map[string]string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"containers": []any{
			map[string]any{"name": "web", "usage": map[string]any{"cpu": "250m", "memory": "64Mi"}},
			map[string]any{"name": "proxy", "usage": map[string]any{"cpu": "1500000n", "memory": "1Mi"}},
		}}}
		u.SetGroupVersionKind(appcache.PodMetricsKind)
		u.SetNamespace(namespace)
		u.SetName(name)
		u.SetLabels(labels)
		return u
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("shop", "web-1", objectmeta.AppLabels("web")), pod("shop", "web-2", objectmeta.AppLabels("web")),
		pod("lab", "web-1", objectmeta.AppLabels("web")), pod("shop", "theirs", map[string]string{"app": "web"}),
	).Build()
	got, err := sizing.UseOfApps(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, map[runnerapi.Key]sizing.AppUse{
		{Namespace: "shop", Name: "web"}: {CPU: 504, Memory: 130 << 20}, {Namespace: "lab", Name: "web"}: {CPU: 252, Memory: 65 << 20},
	}, got)
}
