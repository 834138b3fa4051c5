package ingress

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerName is the controller of the GatewayClasses whose Gateways are the control plane's
// gateway.
const ControllerName = "pipeops.io/gateway"

const gatewayGroup = "gateway.networking.k8s.io"

// gatewayObject is what is read of a Gateway. The zero values of its fields are their defaults,
// unless said.
type gatewayObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		GatewayClassName string           `json:"gatewayClassName"`
		Listeners        []listener       `json:"listeners"`
		Addresses        []map[string]any `json:"addresses"`
	} `json:"spec"`
	Status gatewayStatus `json:"status"`
}

type listener struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"` // empty for all
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
	TLS      struct {
		Mode string `json:"mode"` // Terminate if empty
	} `json:"tls"`
	AllowedRoutes struct {
		Namespaces struct {
			From     string                `json:"from"` // Same if empty
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"namespaces"`
		Kinds []routeKind `json:"kinds"`
	} `json:"allowedRoutes"`
}

type routeKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// parentRef is a reference of an HTTPRoute to its parent.
type parentRef struct {
	Group       *string `json:"group"`
	Kind        string  `json:"kind"`
	Namespace   string  `json:"namespace"`
	Name        string  `json:"name"`
	SectionName string  `json:"sectionName"`
	Port        int32   `json:"port"`
}

// invalid returns the reason and the message of a listener that the gateway does not have; empty if
// it has it.
func (l *listener) invalid() (reason, message string) {
	switch {
	case l.Protocol != "HTTP" && l.Protocol != "HTTPS":
		return "UnsupportedProtocol", "the gateway has HTTP and HTTPS"
	case l.Protocol == "HTTPS" && l.TLS.Mode == "Passthrough":
		return "UnsupportedValue", "tls.mode is Passthrough; the gateway terminates TLS"
	case l.Protocol == "HTTP" && l.Port != 80 || l.Protocol == "HTTPS" && l.Port != 443:
		return "PortUnavailable", "the gateway has port 80 for HTTP, and 443 for HTTPS"
	}
	return "", ""
}

// carries reports whether a listener allows HTTPRoutes.
func (l *listener) carries() bool {
	return len(l.AllowedRoutes.Kinds) == 0 || slices.ContainsFunc(l.AllowedRoutes.Kinds, routeKind.supported)
}

// supported reports whether the gateway has the kind. An absent group is the Gateway API's.
func (k routeKind) supported() bool {
	return k.Kind == "HTTPRoute" && (k.Group == "" || k.Group == gatewayGroup)
}

// decodeObject reads an object into a type with some of its fields.
func decodeObject[T any](o *unstructured.Unstructured) (*T, error) {
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return into, nil
}

// parents are the Gateways of this controller's classes.
type parents struct {
	gateways map[types.NamespacedName]*gatewayObject
	// labelsOf returns the labels of a namespace.
	labelsOf func(namespace string) labels.Set
}

// ourClasses returns the GatewayClasses of this controller.
func (t *gatewayAPI) ourClasses(ctx context.Context) (ours []*unstructured.Unstructured, err error) {
	classes, err := t.classes.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list GatewayClasses: %w", err)
	}
	for i := range classes {
		if specOf(&classes[i])["controllerName"] == ControllerName && classes[i].GetDeletionTimestamp().IsZero() {
			ours = append(ours, &classes[i])
		}
	}
	return ours, nil
}

// parents returns the Gateways of this controller's classes in the namespaces of this agent.
func (t *gatewayAPI) parents(ctx context.Context) (*parents, error) {
	p := &parents{gateways: map[types.NamespacedName]*gatewayObject{}, labelsOf: t.namespaceLabels(ctx)}
	classes, err := t.ourClasses(ctx)
	if err != nil || len(classes) == 0 {
		return p, err
	}
	list, err := t.gateways.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list Gateways: %w", err)
	}
	for i := range list {
		if !t.store.Scope.Covers(list[i].GetNamespace()) || !list[i].GetDeletionTimestamp().IsZero() {
			continue
		}
		g, err := decodeObject[gatewayObject](&list[i])
		if err != nil {
			t.log.Warn().Err(err).Msg("ignoring a Gateway that cannot be read")
			continue
		}
		if slices.ContainsFunc(classes, func(c *unstructured.Unstructured) bool { return c.GetName() == g.Spec.GatewayClassName }) {
			p.gateways[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
		}
	}
	return p, nil
}

// namespaceLabels returns a function that reads the labels of namespaces, each once. Without them a
// namespace is not selected.
func (t *gatewayAPI) namespaceLabels(ctx context.Context) func(string) labels.Set {
	known := map[string]labels.Set{}
	return func(name string) labels.Set {
		if of, ok := known[name]; ok {
			return of
		}
		var namespace corev1.Namespace
		if t.store.Cached.Get(ctx, client.ObjectKey{Name: name}, &namespace) != nil {
			if err := t.store.Live.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
				t.log.Warn().Err(err).Str("namespace", name).Msg("failed to read a namespace that a Gateway may select; its HTTPRoutes are not attached")
			}
		}
		known[name] = namespace.Labels
		return namespace.Labels
	}
}

// attachment is what becomes of a reference of an HTTPRoute to one of our Gateways.
type attachment struct {
	ref       map[string]any // as the HTTPRoute has it
	gateway   *gatewayObject
	listeners []string // names of those that it is attached to
	hosts     []string // at which it is served through them
	// reason and message are of the condition Accepted, which is False unless the reason is
	// Accepted.
	reason, message string
}

// accepted is the reason of a condition Accepted that holds.
const accepted = "Accepted"

// attach returns what becomes of the references of an HTTPRoute to our Gateways.
func (p *parents) attach(h *unstructured.Unstructured) (all []attachment) {
	if len(p.gateways) == 0 {
		return nil
	}
	for _, raw := range objects(specOf(h)["parentRefs"]) {
		var ref parentRef
		if runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &ref) != nil || ref.Group != nil && *ref.Group != gatewayGroup || ref.Kind != "" && ref.Kind != "Gateway" {
			continue
		}
		g := p.gateways[types.NamespacedName{Namespace: cmp.Or(ref.Namespace, h.GetNamespace()), Name: ref.Name}]
		if g == nil {
			continue
		}
		a := attachment{ref: raw, gateway: g}
		p.judge(&a, ref, h)
		all = append(all, a)
	}
	return all
}

// judge finds the listeners of a reference.
func (p *parents) judge(a *attachment, ref parentRef, h *unstructured.Unstructured) {
	a.reason, a.message = "NoMatchingParent", "the Gateway has no listener of this name and port that the gateway can serve"
	for i := range a.gateway.Spec.Listeners {
		l := &a.gateway.Spec.Listeners[i]
		invalid, _ := l.invalid()
		if ref.SectionName != "" && ref.SectionName != l.Name || ref.Port != 0 && ref.Port != l.Port || invalid != "" {
			continue
		}
		if !l.carries() || !p.allows(a.gateway, l, h.GetNamespace()) {
			a.worse("NotAllowedByListeners", "the Gateway's listeners do not allow HTTPRoutes of the namespace "+h.GetNamespace())
			continue
		}
		hosts := intersect(hostnamesOf(h), l.Hostname)
		if len(hosts) == 0 {
			a.worse("NoMatchingListenerHostname", "no host of the HTTPRoute is one of the Gateway's listeners")
			continue
		}
		a.listeners, a.reason, a.message = append(a.listeners, l.Name), accepted, ""
		for _, host := range hosts {
			if host != "" && !slices.Contains(a.hosts, host) {
				a.hosts = append(a.hosts, host)
			}
		}
	}
	if a.reason == accepted && len(a.hosts) == 0 {
		a.listeners, a.reason, a.message = nil, "UnsupportedValue", "neither the HTTPRoute nor the listener names a host, of which the gateway needs a proof"
	}
}

// worse says why a listener does not take the route, unless another one does. The last step that a
// listener got to says most.
func (a *attachment) worse(reason, message string) {
	steps := []string{"NoMatchingParent", "NotAllowedByListeners", "NoMatchingListenerHostname", accepted}
	if slices.Index(steps, reason) > slices.Index(steps, a.reason) {
		a.reason, a.message = reason, message
	}
}

// allows reports whether a listener takes routes of a namespace.
func (p *parents) allows(g *gatewayObject, l *listener, namespace string) bool {
	switch from := l.AllowedRoutes.Namespaces; from.From {
	case "", "Same":
		return namespace == g.Namespace
	case "All":
		return true
	case "Selector":
		selector, err := metav1.LabelSelectorAsSelector(from.Selector)
		return err == nil && selector.Matches(p.labelsOf(namespace))
	}
	return false
}

// intersect returns the hosts that both a route and a listener have; one that is empty if neither
// names any.
func intersect(hosts []string, listener string) (both []string) {
	if len(hosts) == 0 {
		return []string{listener}
	}
	for _, host := range hosts {
		switch {
		case listener == "" || host == listener || covers(listener, host):
			both = append(both, host)
		case covers(host, listener):
			both = append(both, listener)
		}
	}
	return both
}

// covers reports whether a wildcard has another host below it.
func covers(wildcard, host string) bool {
	parent, ok := strings.CutPrefix(wildcard, "*")
	return ok && strings.HasSuffix(host, parent)
}

// servedAt returns the hosts at which an HTTPRoute is served, and why it is not. One without a
// reference to our Gateways is served at its own hosts: its label says so.
func (p *parents) servedAt(h *unstructured.Unstructured) (hosts []string, refused string) {
	all := p.attach(h)
	if len(all) == 0 {
		return hostnamesOf(h), ""
	}
	for _, a := range all {
		for _, host := range a.hosts {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	if len(hosts) > 0 {
		return hosts, ""
	}
	return hostnamesOf(h), "the Gateway " + all[0].gateway.Namespace + "/" + all[0].gateway.Name + " does not accept the HTTPRoute " + h.GetName() + ": " + all[0].message
}
