package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// Under its own name the Kubernetes API has no path prefix, and nothing else is served.
func TestKubernetesAPI_OwnServerName(t *testing.T) {
	agent, api, p, _ := kubernetes(t)
	r := newRaw(t, agent)
	r.http.Transport.(*http.Transport).TLSClientConfig.ServerName = runnerapi.KubernetesServerName(runnertest.ServerName)
	for _, path := range []string{"/api/v1/namespaces/shop/pods", "/version", "/healthz", "/", "/v1/cluster", "/openapi.json"} {
		resp, answer := r.do(http.MethodGet, path, "")
		assert.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, answer)
		assert.Equal(t, "/base"+path, api.last().URL.Path)
	}
	for _, path := range []string{"/../v1/cluster", "/api/v1/namespaces/shop/%2e%2e/pipeops/secrets", "//version"} {
		before := api.count()
		resp, answer := r.do(http.MethodGet, path, "")
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, resp.StatusCode, "%s: %s", path, answer)
		assert.Equal(t, before, api.count(), path)
	}
	p.become(refuseAll)
	resp, answer := r.do(http.MethodGet, "/api/v1/namespaces/shop/pods", "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Contains(t, statusIn(t, answer).Message, "PipeOps agent: ")
}
