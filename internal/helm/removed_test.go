package helm_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// afterList calls a function once, when the names of Secrets have been listed and before the answer
// is seen.
type afterList struct {
	http.RoundTripper
	do *atomic.Pointer[func()]
}

func (a afterList) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(req)
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/secrets") {
		if do := a.do.Swap(nil); do != nil {
			(*do)()
		}
	}
	return answer, err
}

// TestHelmRelease_RemovedWhileRead expects that there is no such release, and no internal error.
func TestHelmRelease_RemovedWhileRead(t *testing.T) {
	env := kubetest.ControlPlane(t)
	config := rest.CopyConfig(env.Agent)
	var do atomic.Pointer[func()]
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return afterList{rt, &do} })
	r := start(t, config)
	remove(t, env, "brief")
	ends := func() {
		for _, s := range revisions(t, env, "brief") {
			assert.NoError(t, env.Client.Delete(t.Context(), &s))
		}
	}
	for name, read := range map[string]func() error{
		"itself": func() error {
			_, err := r.Get(t.Context(), key("brief"))
			return err
		},
		"its revisions": func() error {
			_, err := r.History(t.Context(), key("brief"))
			return err
		},
	} {
		deploy(t, r, "brief", of(guide(t), nil))
		do.Store(&ends)
		assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, read()).Code, name)
		assert.Nil(t, do.Load(), name)
	}
	deploy(t, r, "brief", of(guide(t), nil))
	do.Store(&ends)
	list, err := r.List(t.Context(), production)
	require.NoError(t, err)
	for _, release := range list {
		assert.NotEqual(t, "brief", release.Name)
	}
	assert.Nil(t, do.Load())
}
