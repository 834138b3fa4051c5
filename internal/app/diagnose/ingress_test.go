package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestIngress_Served(t *testing.T) {
	class := func(name string, byDefault bool) networkingv1.IngressClass {
		c := networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if byDefault {
			c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
		}
		return c
	}
	named := func(name string) func(*networkingv1.Ingress) {
		return func(in *networkingv1.Ingress) { in.Spec.IngressClassName = new(name) }
	}
	taken := func(in *networkingv1.Ingress) {
		in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	}
	secret := func(kind corev1.SecretType) map[string]corev1.SecretType {
		return map[string]corev1.SecretType{"cert": kind}
	}
	for name, c := range map[string]struct {
		change  func(*networkingv1.Ingress)
		age     time.Duration
		classes []networkingv1.IngressClass
		secrets map[string]corev1.SecretType
		reason  string
		message string
		fix     string
	}{
		"served": {change: taken, secrets: secret(corev1.SecretTypeTLS), reason: runnerapi.ReasonServed},
		"no such class": {
			change: named("nginx"), classes: []networkingv1.IngressClass{class("traefik", true)}, reason: runnerapi.ReasonNoIngressClass,
			message: `ingress class "nginx", which the cluster does not have`, fix: "one that the cluster has: traefik",
		},
		"no default class": {
			change: func(*networkingv1.Ingress) {}, classes: []networkingv1.IngressClass{class("traefik", false)}, reason: runnerapi.ReasonNoIngressClass,
			message: "the cluster has no default one", fix: "ingress.class",
		},
		"no class at all": {
			change: func(*networkingv1.Ingress) {}, classes: []networkingv1.IngressClass{}, reason: runnerapi.ReasonNoIngressClass,
			message: "the cluster has no default one", fix: "install an ingress controller",
		},
		"a class of old": {
			change: func(in *networkingv1.Ingress) { in.Annotations = map[string]string{classAnnotation: "nginx"} }, age: time.Hour,
			classes: []networkingv1.IngressClass{}, reason: runnerapi.ReasonNoAddress, message: "no ingress controller of the class nginx", fix: "describe ingress web",
		},
		"no controller": {
			change: named("nginx"), age: time.Hour, classes: []networkingv1.IngressClass{class("nginx", false)}, reason: runnerapi.ReasonNoAddress,
			message: "no ingress controller of the class nginx has published an address", fix: "describe ingress web",
		},
		"just made":         {change: named("nginx"), age: takenBy - time.Second, reason: runnerapi.ReasonNoAddress, message: "has yet to publish", fix: "wait"},
		"classes not known": {change: named("nginx"), age: time.Hour, reason: runnerapi.ReasonNoAddress, message: "class nginx", fix: "kubectl"},
		"no certificate": {
			change: taken, secrets: secret(""), reason: runnerapi.ReasonNoTLSSecret,
			message: `secret "cert" with the certificate of shop.example.com does not exist`, fix: "create secret tls cert",
		},
		"no certificate in it": {
			change: taken, secrets: secret(corev1.SecretTypeOpaque), reason: runnerapi.ReasonBadTLSSecret,
			message: "is of type Opaque instead of kubernetes.io/tls", fix: "create secret tls cert",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: ago(c.age)}}
			in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}, SecretName: "cert"}}
			c.change(in)
			ev := IngressEvidence{Ingress: in, Classes: c.classes, Secrets: c.secrets, Now: now}
			got, recheck := Served(ev)
			require.NotNil(t, got)
			assert.Equal(t, runnerapi.ConditionIngressReady, got.Type)
			assert.Equal(t, c.reason, got.Reason)
			assert.Equal(t, c.reason == runnerapi.ReasonServed, got.Holds())
			assert.Contains(t, got.Message, c.message)
			assert.Contains(t, got.Fix, c.fix)
			assert.Equal(t, name == "just made", recheck > 0, "only the time changes that")
			unserved := c.reason == runnerapi.ReasonNoTLSSecret || c.reason == runnerapi.ReasonBadTLSSecret
			assert.Equal(t, unserved, len(UnservedHosts(ev)) > 0)
		})
	}
}
