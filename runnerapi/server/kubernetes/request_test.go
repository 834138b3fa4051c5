package kubernetes_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// The policy is asked about this information, as k8s.io/apiserver reads it.
func TestReadKubernetes_RequestInfo(t *testing.T) {
	type about struct{ verb, group, resource, sub, namespace, name string }
	for line, want := range map[string]about{
		"GET /api/v1/pods":                                   {"list", "", "pods", "", "", ""},
		"GET /api/v1/pods?watch=true":                        {"watch", "", "pods", "", "", ""},
		"GET /api/v1/pods?watch=false":                       {"list", "", "pods", "", "", ""},
		"GET /api/v1/namespaces/shop/pods":                   {"list", "", "pods", "", "shop", ""},
		"GET /api/v1/namespaces/shop/pods/":                  {"list", "", "pods", "", "shop", ""},
		"GET /api/v1/namespaces/shop/pods/a/log?follow=true": {"get", "", "pods", "log", "shop", "a"},
		"POST /api/v1/namespaces/shop/pods/a/exec":           {"create", "", "pods", "exec", "shop", "a"},
		"GET /api/v1/namespaces":                             {"list", "", "namespaces", "", "", ""},
		"POST /api/v1/namespaces":                            {"create", "", "namespaces", "", "", ""},
		"DELETE /api/v1/namespaces/shop":                     {"delete", "", "namespaces", "", "shop", "shop"},
		"PUT /api/v1/namespaces/shop/finalize":               {"update", "", "namespaces", "finalize", "shop", "shop"},
		"DELETE /apis/apps/v1/namespaces/shop/deployments":   {"deletecollection", "apps", "deployments", "", "shop", ""},
		"PATCH /apis/apps/v1/namespaces/shop/deployments/a":  {"patch", "apps", "deployments", "", "shop", "a"},
		"GET /apis/metrics.k8s.io/v1beta1/nodes":             {"list", "metrics.k8s.io", "nodes", "", "", ""},
		"GET /api/v1/watch/namespaces/shop/pods":             {"watch", "", "pods", "", "shop", ""},
		"GET /api/v1/nodes/a/proxy/exec":                     {"get", "", "nodes", "proxy", "", "a"},
		"GET /apis/apps/v1":                                  {verb: "get"},
		"GET /version":                                       {verb: "get"},
		"GET /readyz":                                        {verb: "get"},
		"GET /readyz/etcd":                                   {verb: "get"},
		"GET /metrics":                                       {verb: "get"},
		"POST /api/v1":                                       {verb: "post"},
	} {
		method, path, _ := strings.Cut(line, " ")
		k, err := kubernetes.Read(httptest.NewRequest(method, "/v1/kubernetes"+path, nil))
		require.NoError(t, err, line)
		assert.Equal(t, want, about{k.Verb, k.Group, k.Resource, k.Subresource, k.Namespace, k.Name}, line)
		assert.Equal(t, line == "GET /version" || line == "GET /apis/apps/v1" || line == "GET /readyz", k.Discovery, line)
		assert.Equal(t, k.Verb == "watch" || k.Subresource == "log", k.Follow, line)
	}
}

func FuzzReadKubernetes(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/shop/pods/a/exec?command=x")
	f.Add("DELETE", "/apis/a/b/namespaces/../x")
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI("/v1/kubernetes" + path)
		if err != nil {
			return
		}
		k, err := kubernetes.Read(&http.Request{Method: method, URL: u, Header: http.Header{}})
		if err != nil {
			return
		}
		if k.Namespace != "" && !strings.Contains(k.Path+"/", "/namespaces/"+k.Namespace+"/") {
			t.Fatalf("%q is not about namespace %q", path, k.Namespace)
		}
		for part := range strings.SplitSeq(k.Path, "/") {
			require.True(t, part != "." && part != "..", "%q leaves its folder", k.Path)
		}
	})
}
