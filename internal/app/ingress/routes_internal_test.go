package ingress

import (
	"testing"

	"github.com/stretchr/testify/assert"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

// TestAppOf_SameNamespace: the author of an Ingress writes its owners, and the API server checks
// none of them. Until the garbage collector removes it, an Ingress can name an App of another
// namespace, whose host it would take.
func TestAppOf_SameNamespace(t *testing.T) {
	app := &v1alpha1.App{}
	app.Namespace, app.Name, app.UID = "shop", "web", "1"
	leaving := &v1alpha1.App{}
	leaving.Namespace, leaving.UID, leaving.DeletionTimestamp = "shop", "2", new(metav1.Now())
	apps := map[types.UID]*v1alpha1.App{app.UID: app, leaving.UID: leaving}
	for name, c := range map[string]struct {
		namespace, kind string
		uid             types.UID
		of              *v1alpha1.App
		serves          bool
	}{
		"its own":           {"shop", v1alpha1.Kind, "1", app, true},
		"of another kind":   {"shop", "Site", "1", nil, true},
		"unknown":           {"shop", v1alpha1.Kind, "3", nil, false},
		"being deleted":     {"shop", v1alpha1.Kind, "2", nil, false},
		"another namespace": {"evil", v1alpha1.Kind, "1", nil, false},
	} {
		in := &networkingv1.Ingress{}
		in.Namespace, in.OwnerReferences = c.namespace, []metav1.OwnerReference{{Kind: c.kind, UID: c.uid, Controller: new(true)}}
		of, serves := appOf(in, apps)
		assert.Equal(t, c.serves, serves, name)
		if serves {
			assert.Equal(t, c.of, of, name)
		}
	}
	of, serves := appOf(&networkingv1.Ingress{}, apps)
	assert.True(t, serves)
	assert.Nil(t, of)
}
