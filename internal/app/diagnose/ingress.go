package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// takenBy is how long an ingress controller may take to publish an Ingress' address.
const takenBy = time.Minute

// classAnnotation names an Ingress' class as was done before there were IngressClasses. A
// controller may obey it without one.
const classAnnotation = "kubernetes.io/ingress.class"

// IngressEvidence is what is known about an App's Ingress.
type IngressEvidence struct {
	Ingress *networkingv1.Ingress
	// Classes are the classes of the cluster, if WantsClasses returned true; nil if they are
	// unknown.
	Classes []networkingv1.IngressClass
	// Secrets are the types of the TLS Secrets that are known, by name; empty for one that is
	// not there.
	Secrets map[string]corev1.SecretType
	Now     time.Time
}

// WantsClasses reports whether it matters which classes the cluster has.
func WantsClasses(in *networkingv1.Ingress) bool { return !addressed(in) }

func addressed(in *networkingv1.Ingress) bool { return len(in.Status.LoadBalancer.Ingress) > 0 }

// Served reports whether an Ingress is served, and when time alone can change that.
func Served(ev IngressEvidence) (*runnerapi.Condition, time.Duration) {
	ready := runnerapi.ConditionIngressReady
	if c := noCertificate(ev); c != nil {
		return c, 0
	}
	if addressed(ev.Ingress) {
		return ready.True(runnerapi.ReasonServed), 0
	}
	if c := noClass(ev); c != nil {
		return c, 0
	}
	of := ""
	if class := classOfIngress(ev.Ingress); class != "" {
		of = " of the class " + class
	}
	if left := ev.Ingress.CreationTimestamp.Add(takenBy).Sub(ev.Now); left > 0 {
		return ready.False(runnerapi.ReasonNoAddress, "an ingress controller"+of+" has yet to publish an address of the Ingress",
			"wait for a minute"), left
	}
	return ready.False(runnerapi.ReasonNoAddress, "no ingress controller"+of+" has published an address of the Ingress",
		fmt.Sprintf("see that an ingress controller%s runs (kubectl get pods -A) and what it says of the Ingress (kubectl -n %s describe ingress %s)",
			of, ev.Ingress.Namespace, ev.Ingress.Name)), 0
}

// UnservedHosts returns the hosts whose certificate is not there.
func UnservedHosts(ev IngressEvidence) (hosts []string) {
	for _, t := range ev.Ingress.Spec.TLS {
		if kind, known := ev.Secrets[t.SecretName]; known && kind != corev1.SecretTypeTLS {
			hosts = append(hosts, t.Hosts...)
		}
	}
	return hosts
}

func noCertificate(ev IngressEvidence) *runnerapi.Condition {
	for _, t := range ev.Ingress.Spec.TLS {
		kind, known := ev.Secrets[t.SecretName]
		switch hosts := clip(strings.Join(t.Hosts, ", ")); {
		case !known || kind == corev1.SecretTypeTLS:
		case kind == "":
			return runnerapi.ConditionIngressReady.False(runnerapi.ReasonNoTLSSecret,
				fmt.Sprintf("secret %q with the certificate of %s does not exist", t.SecretName, hosts),
				fmt.Sprintf("create it (kubectl -n %s create secret tls %s --cert FILE --key FILE), or correct ingress.hosts.tlsSecret",
					ev.Ingress.Namespace, t.SecretName))
		default:
			return runnerapi.ConditionIngressReady.False(runnerapi.ReasonBadTLSSecret,
				fmt.Sprintf("secret %q with the certificate of %s is of type %s instead of %s", t.SecretName, hosts, kind, corev1.SecretTypeTLS),
				fmt.Sprintf("recreate it (kubectl -n %s create secret tls %s --cert FILE --key FILE), or correct ingress.hosts.tlsSecret",
					ev.Ingress.Namespace, t.SecretName))
		}
	}
	return nil
}

func noClass(ev IngressEvidence) *runnerapi.Condition {
	if ev.Classes == nil || ev.Ingress.Annotations[classAnnotation] != "" {
		return nil
	}
	var has []string
	for i := range ev.Classes {
		c := &ev.Classes[i]
		class := ptr.Deref(ev.Ingress.Spec.IngressClassName, "")
		if c.Name == class || class == "" && c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return nil
		}
		has = append(has, c.Name)
	}
	slices.Sort(has)
	what := "names no ingress class, and the cluster has no default one"
	if class := ptr.Deref(ev.Ingress.Spec.IngressClassName, ""); class != "" {
		what = fmt.Sprintf("names ingress class %q, which the cluster does not have", class)
	}
	fix := "install an ingress controller with its ingress class (kubectl get ingressclass)"
	if len(has) > 0 {
		fix = "set ingress.class to one that the cluster has: " + clip(strings.Join(has, ", "))
	}
	return runnerapi.ConditionIngressReady.False(runnerapi.ReasonNoIngressClass, "the Ingress "+what, fix)
}

func classOfIngress(in *networkingv1.Ingress) string {
	return cmp.Or(ptr.Deref(in.Spec.IngressClassName, ""), in.Annotations[classAnnotation])
}
