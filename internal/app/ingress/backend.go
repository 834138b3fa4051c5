package ingress

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// The reasons of the Gateway API for references that lead nowhere.
const notFound, notPermitted, invalidKind = "BackendNotFound", "RefNotPermitted", "InvalidKind"

// destination is where a route leads.
type destination struct {
	port      int32 // of the Service; 0 if there is none
	addresses []string
	http2     bool
	reason    string // why it has no address
	missing   string // the Gateway API's reason, of a Service that does not exist or is not reached
}

// protocols of a Service's port that are HTTP/2 without TLS (KEP-3726, and what others use).
var cleartextHTTP2 = []string{"kubernetes.io/h2c", "h2c", "grpc"}

// backend finds a Service that has the agent's label, like the Ingress that names it. No other one
// is reached by the public.
func (t *Router) backend(ctx context.Context, namespace string, to *networkingv1.IngressServiceBackend) destination {
	return t.backendOf(ctx, namespace, to, gatewaywire.TCP)
}

// backendOf is backend for a port of a protocol of gatewaywire.
func (t *Router) backendOf(ctx context.Context, namespace string, to *networkingv1.IngressServiceBackend, protocol string) destination {
	s := &corev1.Service{}
	err := t.store.Cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: to.Name}, s)
	switch {
	case apierrors.IsNotFound(err):
		return destination{port: to.Port.Number, missing: notFound, reason: "there is no Service " + to.Name + " with the agent's label"}
	case err != nil:
		return destination{port: to.Port.Number, reason: "the Service " + to.Name + " cannot be read"}
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return destination{port: to.Port.Number, missing: notFound, reason: "the Service " + to.Name + " is of the type ExternalName, which the public does not reach"}
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return (p.Protocol == corev1.ProtocolUDP) == (protocol == gatewaywire.UDP) && (to.Port.Number != 0 && p.Port == to.Port.Number || to.Port.Number == 0 && p.Name == to.Port.Name)
	})
	if i < 0 {
		return destination{port: to.Port.Number, missing: notFound, reason: "the Service " + to.Name + " has no such port"}
	}
	port := s.Spec.Ports[i]
	found := destination{port: port.Port, http2: slices.Contains(cleartextHTTP2, ptr.Deref(port.AppProtocol, ""))}
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		found.addresses = []string{net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port)))}
		return found
	}
	t.leadsToPods.Store(true)
	if found.addresses = t.podAddresses(ctx, s, port); len(found.addresses) == 0 {
		found.reason = "no pod is ready"
	}
	return found
}

// podAddresses returns where the pods behind a Service without its own address are reached.
func (t *Router) podAddresses(ctx context.Context, s *corev1.Service, port corev1.ServicePort) (addresses []string) {
	if len(s.Spec.Selector) == 0 || port.TargetPort.Type == intstr.String {
		return nil
	}
	target := cmp.Or(port.TargetPort.IntVal, port.Port)
	var pods corev1.PodList
	err := t.store.Cached.List(ctx, &pods, appcache.Untouched, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(s.Spec.Selector)})
	if err != nil {
		return nil
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp.IsZero() && p.Status.PodIP != "" && workload.PodReady(p) {
			addresses = append(addresses, net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(target))))
		}
	}
	slices.Sort(addresses)
	return addresses
}
