package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestAnAppIsReadThatTheCacheDoesNotHaveYet is of an App that another replica has just written.
func TestAnAppIsReadThatTheCacheDoesNotHaveYet(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, AddToScheme(scheme))
	web := &App{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	e := &Engine{
		cached: fake.NewClientBuilder().WithScheme(scheme).Build(),
		live:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(web).Build(),
	}
	a, err := e.get(t.Context(), runnerapi.Key{Namespace: "shop", Name: "web"})
	require.NoError(t, err)
	assert.Equal(t, "web", a.Name)
	_, err = e.get(t.Context(), runnerapi.Key{Namespace: "shop", Name: "api"})
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.NotFound, known.Code)
}
