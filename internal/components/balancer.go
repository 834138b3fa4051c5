package components

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// balancers are the Services of type LoadBalancer in all namespaces.
type balancers struct {
	all []corev1.Service
	// nodes are the addresses of nodes, at which k3s gives each port to one Service.
	nodes map[string]bool
}

func loadBalancers(ctx context.Context, api kubernetes.Interface) (*balancers, error) {
	list, err := api.CoreV1().Services("").List(ctx, metav1.ListOptions{FieldSelector: "spec.type=" + string(corev1.ServiceTypeLoadBalancer), ResourceVersion: "0"})
	if err != nil {
		return nil, translated(err, "listing Services")
	}
	b := &balancers{all: list.Items, nodes: map[string]bool{}}
	if !slices.ContainsFunc(b.all, func(s corev1.Service) bool { return !hasAddress(&s) }) {
		return b, nil
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, translated(err, "listing nodes")
	}
	for i := range nodes.Items {
		for _, a := range nodes.Items[i].Status.Addresses {
			b.nodes[a.Address] = true
		}
	}
	return b, nil
}

func hasAddress(s *corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 }

// addBalancers takes account of a release's load balancer without an address.
func (s *State) addBalancers(of releaseKey, b *balancers) {
	for i := range b.all {
		own := &b.all[i]
		if releaseOf(own) != of || hasAddress(own) || s.Cause != "" {
			continue
		}
		name := own.Namespace + "/" + own.Name
		port, holder := b.portHolder(own)
		if holder == "" {
			if s.Ready {
				s.Ready, s.Workload, s.Message = false, name, "the Service has no address yet: nothing in the cluster has given it one"
				s.Fix = "wait a minute; without a load balancer in the cluster, set the type of the Service in the values of the chart"
			}
			continue
		}
		s.Ready, s.Workload, s.Cause = false, name, string(runnerapi.CausePortClash)
		s.Message = fmt.Sprintf("the Service has no address: port %d is taken by Service %s", port, holder)
		s.Fix = "remove one of the two, or set other ports, or the type of the Service, in the values of the chart"
	}
}

// portHolder returns another load balancer that has one of the same ports at the nodes.
func (b *balancers) portHolder(own *corev1.Service) (port int32, holder string) {
	for i := range b.all {
		other := &b.all[i]
		onNode := func(at corev1.LoadBalancerIngress) bool { return b.nodes[at.IP] || b.nodes[at.Hostname] }
		if other.UID == own.UID || !slices.ContainsFunc(other.Status.LoadBalancer.Ingress, onNode) {
			continue
		}
		for _, p := range own.Spec.Ports {
			if slices.ContainsFunc(other.Spec.Ports, func(o corev1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
				return p.Port, other.Namespace + "/" + other.Name
			}
		}
	}
	return 0, ""
}
