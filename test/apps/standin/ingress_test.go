package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
)

const testClass, testHost = "nginx", "shop.example.com"

// made returns an Ingress whose Services have the name of the Ingress and the number of the path.
func made(name string, age time.Duration, paths ...networkingv1.HTTPIngressPath) *networkingv1.Ingress {
	class := testClass
	for i := range paths {
		paths[i].Backend.Service = &networkingv1.IngressServiceBackend{Name: name + "-" + strconv.Itoa(i), Port: networkingv1.ServiceBackendPort{Number: 80}}
	}
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "production", UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{
			Host: testHost, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}},
		}}},
	}
}

func path(text string, kind networkingv1.PathType) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: text, PathType: &kind}
}

func controllerOf(t *testing.T, all ...*networkingv1.Ingress) *controller {
	t.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, in := range all {
		require.NoError(t, store.Add(in))
	}
	return &controller{class: testClass, ingresses: networkinglisters.NewIngressLister(store)}
}

func TestIngress_RoutesByPath(t *testing.T) {
	const exact, prefix = networkingv1.PathTypeExact, networkingv1.PathTypePrefix
	in := made("web", time.Hour, path("/", prefix), path("/shop", prefix), path("/shop/cart/", prefix), path("/shop/cart", exact))
	for request, want := range map[string]string{
		"/": "web-0", "/other": "web-0", "/shopping": "web-0",
		"/shop": "web-1", "/shop/": "web-1", "/shop/a": "web-1",
		"/shop/cart/": "web-2", "/shop/cart/a": "web-2",
		"/shop/cart": "web-3",
	} {
		to := backend(in, testHost, request)
		require.NotNil(t, to, request)
		assert.Equal(t, want, to.Name, request)
	}
	assert.Nil(t, backend(made("api", time.Hour, path("/api", prefix)), testHost, "/"))
}

func TestIngress_OldestGetsHost(t *testing.T) {
	const prefix = networkingv1.PathTypePrefix
	others := made("others", 3*time.Hour, path("/", prefix))
	*others.Spec.IngressClassName = "traefik"
	none := made("none", 3*time.Hour, path("/", prefix))
	none.Spec.IngressClassName = nil
	c := controllerOf(t, made("new", time.Hour, path("/", prefix)), made("old", 2*time.Hour, path("/", prefix)), others, none)
	assert.Equal(t, "old", c.owner(testHost).Name)
	assert.Nil(t, c.owner("other.example.com"))
}

func TestIngress_AnswersItself(t *testing.T) {
	in := made("web", time.Hour, path("/api", networkingv1.PathTypePrefix))
	in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{testHost}, SecretName: "web-tls"}}
	c := controllerOf(t, in)
	for url, want := range map[string]int{
		"http://other.example.com/api":          http.StatusNotFound,
		"http://" + testHost + "/":              http.StatusNotFound,
		"http://" + testHost + "/api":           http.StatusMovedPermanently,
		"http://SHOP.example.com:80/api?a=b%20": http.StatusMovedPermanently,
	} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))
		assert.Equal(t, want, w.Code, url)
		if w.Code == http.StatusMovedPermanently {
			assert.Regexp(t, "^https://"+testHost+"/api", w.Header().Get("Location"))
		}
	}
}

func TestIngress_ReadsChartArguments(t *testing.T) {
	assert.Equal(t, map[string]string{"ingress-class": "nginx", "report-ingress-status": "", "ready-status-port": "8081"},
		flagsOf([]string{"-ingress-class=nginx", "-report-ingress-status", "-ready-status-port=8081"}))
}
