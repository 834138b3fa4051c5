package components

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Endpoint is where a component serves its HTTP API.
type Endpoint struct {
	Namespace string
	URL       string // of its Service's cluster IP, so that it needs no cluster DNS
	Service   string // its name, for those who are outside of the cluster
	Port      int32
}

// apiPorts are the ports of the components' APIs, by the names that charts give them.
var apiPorts = map[string][]string{
	"prometheus": {"http", "http-web", "web"},
	"loki":       {"http-metrics"},
	"opencost":   {"http"},
}

// FindEndpoint returns where a component serves its API, or nil if the cluster lacks it. It finds
// the Service by its name label, as [Look] does. Outside of the component's own namespace a Service
// counts only if trusted says so of its namespace: a Runner with rights there could have made it.
func FindEndpoint(ctx context.Context, api kubernetes.Interface, component string, trusted func(namespace string) (bool, error)) (*Endpoint, error) {
	c, ok := find(component)
	if !ok || apiPorts[component] == nil {
		return nil, fmt.Errorf("components: %s has no API", component)
	}
	list, err := api.CoreV1().Services("").List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + component, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Service) int { return foreign(a, c) - foreign(b, c) })
	for i := range list.Items {
		s := &list.Items[i]
		port := apiPort(s, apiPorts[component])
		if port == 0 {
			continue
		}
		if s.Namespace != c.Namespace {
			if ok, err := trusted(s.Namespace); err != nil || !ok {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		return &Endpoint{
			Namespace: s.Namespace, Service: s.Name, Port: port,
			URL: "http://" + net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port))),
		}, nil
	}
	return nil, nil //nolint:nilnil // there is none
}

func foreign(s corev1.Service, c Component) int {
	if s.Namespace == c.Namespace {
		return 0
	}
	return 1
}

// apiPort returns the port with the first of the names, or zero. Only a cluster IP leads to pods:
// an ExternalName leads anywhere.
func apiPort(s *corev1.Service, names []string) int32 {
	if net.ParseIP(s.Spec.ClusterIP) == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return 0
	}
	for _, name := range names {
		for _, p := range s.Spec.Ports {
			if p.Name == name {
				return p.Port
			}
		}
	}
	return 0
}
