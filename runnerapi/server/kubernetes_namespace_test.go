package server_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The policy is asked about each of these as a request into the agent's namespace.
func TestKubernetesAPI_DetectsAgentNamespace(t *testing.T) {
	agent, _, p, _ := kubernetes(t)
	p.become(refuseAll)
	r := newRaw(t, agent)
	for path, into := range map[string]bool{
		"/api/v1/namespaces/pipeops/secrets":                                       true,
		"/api/v1/namespaces/pipeops":                                               true,
		"/api/v1/watch/namespaces/pipeops/secrets":                                 true,
		"/api/v1/secrets?fieldSelector=metadata.namespace%3Dpipeops":               true,
		"/api/v1/secrets?fieldSelector=type%3Da%2Cmetadata.namespace%3D%3Dpipeops": true,
		"/api/v1/secrets?watch=1&fieldSelector=metadata.namespace%3Dpipeops":       true,
		"/api/v1/watch/secrets?fieldSelector=metadata.namespace%3Dpipeops":         true,
		"/apis/apps/v1/deployments?fieldSelector=metadata.namespace%3Dpipeops":     true,
		"/api/v1/nodes/a/proxy/containerLogs/pipeops/agent/agent":                  true,
		"/api/v1/nodes/a:10250/proxy":                                              true,
		"/api/v1/proxy/nodes/a/pods":                                               true,
		"/api/v1/nodes":                                                            false,
		"/api/v1/namespaces/shop/pods?fieldSelector=metadata.namespace%3Dpipeops":  false,
		"/api/v1/secrets?fieldSelector=metadata.namespace%21%3Dpipeops":            false,
		"/api/v1/namespaces/shop/services/nodes/proxy":                             false,
	} {
		r.do(http.MethodGet, "/v1/kubernetes"+path, "")
		asked := p.all()
		require.NotEmpty(t, asked)
		assert.Equal(t, into, asked[len(asked)-1].Kubernetes.InAgentNamespace, path)
	}
}

// The API server applies the field selector to lists and watches.
func TestKubernetesAPI_HidesAgentNamespace(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	r := newRaw(t, agent)
	const hidden = "metadata.namespace!=pipeops"
	for path, want := range map[string]string{
		"/api/v1/secrets":                                    hidden,
		"/api/v1/secrets?limit=5&continue=a":                 hidden,
		"/apis/metrics.k8s.io/v1beta1/pods":                  hidden,
		"/api/v1/pods?fieldSelector=status.phase%3DRunning":  "status.phase=Running," + hidden,
		"/api/v1/watch/pods":                                 hidden,
		"/api/v1/namespaces/shop/secrets":                    "",
		"/api/v1/nodes":                                      "",
		"/api/v1/namespaces":                                 "",
		"/api/v1/namespaces?fieldSelector=metadata.name%3Da": "metadata.name=a",
	} {
		resp, answer := r.do(http.MethodGet, "/v1/kubernetes"+path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, answer)
		sent := api.last().URL.Query()
		assert.Equal(t, want, sent.Get("fieldSelector"), path)
		before, err := url.Parse(path)
		require.NoError(t, err)
		for name := range before.Query() {
			if name != "fieldSelector" {
				assert.Equal(t, before.Query()[name], sent[name], "the rest of %s stays", path)
			}
		}
	}
	for _, twice := range []string{"fieldSelector=a%3Db&fieldSelector=metadata.namespace%3Dpipeops", "fieldSelector=a"} {
		resp, _ := r.do(http.MethodGet, "/v1/kubernetes/api/v1/secrets?"+twice, "")
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, twice)
	}
}
