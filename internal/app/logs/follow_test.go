package logs

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/store"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// TestFollow_EndsWithApp has another App of the same name, whose pods must not be read.
func TestFollow_EndsWithApp(t *testing.T) {
	of := func(uid types.UID) *v1alpha1.App {
		return &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid}}
	}
	scheme, err := store.NewScheme()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		now  []client.Object
		goes bool
	}{
		"as it was":      {now: []client.Object{of("first")}, goes: true},
		"gone":           {},
		"made once more": {now: []client.Object{of("second")}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.now...).Build()
			r := &reading{app: of("first"), Reader: &Reader{store: store.New(cluster, cluster, objectmeta.Scope{}, zerolog.Nop(), time.Now)}}
			news := make(chan struct{}, 1)
			news <- struct{}{}
			again, err := r.relay(t.Context(), nil, nil, nil, news)
			require.NoError(t, err)
			assert.Equal(t, c.goes, again)
		})
	}
}
