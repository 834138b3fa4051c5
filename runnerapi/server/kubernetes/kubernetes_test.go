package kubernetes_test

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
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

// The messages of each kind of stream are cut in every way.
func TestFrames_EndBetweenMessages(t *testing.T) {
	long := strings.Repeat("a", 70000)
	for name, stream := range map[string][]string{ // its messages
		"json":      {`{"type":"ADDED"}` + "\n", `{"type":"MODIFIED"}` + "\n"},
		"protobuf":  {"\x00\x00\x00\x05abcde", "\x00\x00\x00\x00", "\x00\x01\x11\x70" + long},
		"websocket": {"\x82\x04ping", "\x02\x01a\x80\x01b", "\x89\x00", "\x82\x7e\x01\x00" + long[:256], "\x82\x7f\x00\x00\x00\x00\x00\x01\x11\x70" + long},
	} {
		f := kubernetes.NewFrames(name)
		require.True(t, f.Whole(), name)
		for _, message := range stream {
			for i := range len(message) - 1 {
				f.Follow([]byte(message[i : i+1]))
				assert.False(t, f.Whole() && !strings.HasPrefix(message, "\x02"), "%s: %d of %.20q", name, i, message)
			}
			f.Follow([]byte(message[len(message)-1:]))
			assert.True(t, f.Whole(), "%s: %.20q", name, message)
		}
		whole := strings.Join(stream, "")
		f.Follow([]byte(whole))
		assert.True(t, f.Whole(), name)
		f.Follow([]byte(whole[:len(whole)-1]))
		assert.False(t, f.Whole(), name)
	}
	f := kubernetes.NewFrames("websocket")
	f.Follow([]byte("\x02\x01a\x89\x00"))
	assert.False(t, f.Whole(), "a ping does not end a message of several frames")
}

// Reads it as Kubernetes' clients do.
func TestFrames_ProtobufStatus(t *testing.T) {
	sent := kubernetes.NewFrames("protobuf").End(runnerapi.PolicyDenied("ask", "not any more"))
	require.EqualValues(t, len(sent)-4, binary.BigEndian.Uint32(sent))
	var event metav1.WatchEvent
	require.NoError(t, event.Unmarshal(sent[4:]))
	assert.Equal(t, "ERROR", event.Type)
	var object runtime.Unknown
	require.NoError(t, object.Unmarshal(event.Object.Raw[4:]))
	assert.Equal(t, "k8s\x00", string(event.Object.Raw[:4]))
	var status metav1.Status
	require.NoError(t, status.Unmarshal(object.Raw))
	assert.Equal(t, "PipeOps agent: not any more (fix: ask)", status.Message)
}
