package harness

import (
	"context"
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Balancer stands in for an ingress controller with a load balancer. It is a pod that listens at
// the node's own address.
type Balancer struct {
	// Host is the public host that it serves.
	Host string
	// Namespace, Service and Port are where it passes requests.
	Namespace, Service string
	Port               int32
}

const balancerPod = "ingress"

// ErrTheirs means that the user provides the cluster. A stand-in would take port 443 of a node
// there.
var ErrTheirs = errors.New("the stand-in for a load balancer needs a cluster that the test started")

// StartBalancer has an Ingress lead a host to a Service, and reports the node's address as that of
// the load balancer.
func (s *System) StartBalancer(ctx context.Context, b Balancer) error {
	if s.Cluster == nil {
		return ErrTheirs
	}
	image, err := s.LoadApp(ctx, "ingress")
	if err != nil {
		return err
	}
	service, err := s.Kube.Clientset.CoreV1().Services(b.Namespace).Get(ctx, b.Service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	root := int64(0) // for the port
	if _, err := s.Kube.Clientset.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: balancerPod},
		Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{
			Name: balancerPod, Image: image, SecurityContext: &corev1.SecurityContext{RunAsUser: &root}, Args: []string{"--to", fmt.Sprintf("%s:%d", service.Spec.ClusterIP, b.Port)},
		}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := Eventually(ctx, "the ingress controller listens", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(s.Cluster.NodeIP(), "443"))
		if err == nil {
			err = conn.Close()
		}
		return err
	}); err != nil {
		return err
	}
	return s.publish(ctx, b)
}

// publish makes the Ingress as an ingress controller sees it.
func (s *System) publish(ctx context.Context, b Balancer) error {
	prefix := networkingv1.PathTypePrefix
	ingresses := s.Kube.Clientset.NetworkingV1().Ingresses(b.Namespace)
	in, err := ingresses.Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: b.Service, Labels: map[string]string{"app.kubernetes.io/managed-by": "pipeops"}},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{b.Host}}},
			Rules: []networkingv1.IngressRule{{Host: b.Host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: b.Service, Port: networkingv1.ServiceBackendPort{Number: b.Port}},
				}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: s.Cluster.NodeIP()}}
	_, err = ingresses.UpdateStatus(ctx, in, metav1.UpdateOptions{})
	return err
}

// StopBalancer ends the stand-in as a crash would. Its Ingress stays as it is.
func (s *System) StopBalancer(ctx context.Context) error {
	none := int64(0)
	pods := s.Kube.Clientset.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.Delete(ctx, balancerPod, metav1.DeleteOptions{GracePeriodSeconds: &none}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
