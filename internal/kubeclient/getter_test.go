package kubeclient_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
)

// TestGetter_CopiesConfig: Helm's callers write the group and version of an object
// into it, for many objects at a time.
func TestGetter_CopiesConfig(t *testing.T) {
	config := &rest.Config{Host: "https://example.com"}
	g, err := kubeclient.NewGetter(config, "default")
	require.NoError(t, err)
	one, err := g.ToRESTConfig()
	require.NoError(t, err)
	one.APIPath = "/apis"
	two, err := g.ToRESTConfig()
	require.NoError(t, err)
	assert.Empty(t, two.APIPath)
	assert.Empty(t, config.APIPath)
}
