package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestUncarried names the field that the gateway does not support.
func TestUncarried(t *testing.T) {
	assert.Empty(t, uncarried(nil))
	route := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hostnames": []any{"a.example.com"}}}}
	route.SetNamespace("shop")
	route.SetName("site")
	found := uncarried([]unstructured.Unstructured{route})
	require.Len(t, found, 1)
	assert.Equal(t, "shop: HTTPRoute site is not served: spec.rules is empty; add a rule with a backend", found[0].Detail)
	many := make([]unstructured.Unstructured, shownHosts+2)
	for i := range many {
		many[i] = route
	}
	found = uncarried(many)
	require.Len(t, found, shownHosts+1)
	assert.Equal(t, "2 more HTTPRoutes", found[shownHosts].Detail)
}
