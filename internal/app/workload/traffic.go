package workload

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// service returns the Service of an App with ports, or nil.
func service(a *v1alpha1.App) *corev1.Service {
	if len(a.Spec.Ports) == 0 {
		return nil
	}
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: ChildMeta(a),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: objectmeta.AppLabels(a.Name),
		},
	}
	if adopted := AdoptionOf(a).Service; len(adopted) > 0 { // the pods from before the adoption are still there
		s.Spec.Selector = adopted
	}
	for _, p := range a.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.ServicePort(), TargetPort: intstr.FromInt32(p.Port), Protocol: protocol(p),
		})
	}
	return s
}

// headlessName returns the name of the Service that gives the pods of a StatefulSet their names.
func headlessName(app string) string { return app + "-headless" }

// headless returns the Service that names the pods of a StatefulSet, ready or not: members of a
// cluster look for each other before they are ready.
func headless(a *v1alpha1.App) *corev1.Service {
	if a.Spec.Type != runnerapi.TypeStatefulSet {
		return nil
	}
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: ChildMeta(a),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: objectmeta.AppLabels(a.Name), PublishNotReadyAddresses: true,
		},
	}
	s.Name = headlessName(a.Name)
	for _, p := range a.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, TargetPort: intstr.FromInt32(p.Port), Protocol: protocol(p),
		})
	}
	return s
}

// ControllerHosts returns the App's hosts that an ingress controller may serve. With visitors there
// are none, because it would let in everyone. It cannot pass connections on with their TLS.
func ControllerHosts(a *v1alpha1.App) []runnerapi.IngressHost {
	if a.Spec.Ingress == nil || a.Spec.Ingress.Visitors != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Spec.Ingress.Hosts), func(h runnerapi.IngressHost) bool { return h.Passthrough })
}

// ingress returns the Ingress of an App with hosts for an ingress controller, or nil.
func ingress(a *v1alpha1.App) *networkingv1.Ingress {
	spec, hosts := a.Spec.Ingress, ControllerHosts(a)
	if len(hosts) == 0 {
		return nil
	}
	out := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: ChildMeta(a),
	}
	out.Annotations = spec.Annotations
	if spec.Class != "" {
		out.Spec.IngressClassName = new(spec.Class)
	}
	for _, h := range hosts {
		out.Spec.Rules = addRule(out.Spec.Rules, h, a)
		out.Spec.TLS = addTLS(out.Spec.TLS, h)
	}
	return out
}

// addRule puts the paths of one host into one rule, as ingress controllers expect.
func addRule(rules []networkingv1.IngressRule, h runnerapi.IngressHost, a *v1alpha1.App) []networkingv1.IngressRule {
	path := networkingv1.HTTPIngressPath{
		Path: PathOf(h), PathType: new(networkingv1.PathTypePrefix),
		Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: a.Name}},
	}
	path.Backend.Service.Port.Number = cmp.Or(h.Port, FirstTCPPort(a))
	i := slices.IndexFunc(rules, func(r networkingv1.IngressRule) bool { return r.Host == h.Host })
	if i < 0 {
		i = len(rules)
		rules = append(rules, networkingv1.IngressRule{Host: h.Host})
		rules[i].HTTP = &networkingv1.HTTPIngressRuleValue{}
	}
	rules[i].HTTP.Paths = append(rules[i].HTTP.Paths, path)
	return rules
}

// FirstTCPPort returns the port of the App's Service that requests are sent to unless another is
// named.
func FirstTCPPort(a *v1alpha1.App) int32 {
	for _, p := range a.Spec.Ports {
		if protocol(p) == corev1.ProtocolTCP {
			return p.ServicePort()
		}
	}
	return 0
}

func addTLS(all []networkingv1.IngressTLS, h runnerapi.IngressHost) []networkingv1.IngressTLS {
	if h.TLSSecret == "" {
		return all
	}
	i := slices.IndexFunc(all, func(t networkingv1.IngressTLS) bool { return t.SecretName == h.TLSSecret })
	if i < 0 {
		return append(all, networkingv1.IngressTLS{Hosts: []string{h.Host}, SecretName: h.TLSSecret})
	}
	if !slices.Contains(all[i].Hosts, h.Host) {
		all[i].Hosts = append(all[i].Hosts, h.Host)
	}
	return all
}

// PathOf returns the path of a host, which is never empty.
func PathOf(h runnerapi.IngressHost) string {
	return cmp.Or(h.Path, "/")
}

// PublicURLs returns the URLs at which the ingress controller serves the App. It leaves out the
// hosts without a certificate.
func PublicURLs(a *v1alpha1.App, without []string) []string {
	var out []string
	for _, h := range ControllerHosts(a) {
		if slices.Contains(without, h.Host) {
			continue
		}
		scheme := "http://"
		if h.TLSSecret != "" {
			scheme = "https://"
		}
		out = append(out, scheme+h.Host+PathOf(h))
	}
	return out
}

func protocol(p runnerapi.Port) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return corev1.Protocol(p.Protocol)
}

// URLs returns the URLs of the App inside the cluster.
func URLs(a *v1alpha1.App) []string {
	var out []string
	for _, p := range a.Spec.Ports {
		if protocol(p) == corev1.ProtocolTCP {
			out = append(out, fmt.Sprintf("http://%s.%s.svc:%d", a.Name, a.Namespace, p.ServicePort()))
		}
	}
	return out
}
