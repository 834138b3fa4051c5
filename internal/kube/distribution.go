package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// distribution returns the distribution of Kubernetes, from the version and a node.
func distribution(version string, node *corev1.Node) string {
	if node == nil {
		node = &corev1.Node{}
	}
	if d := byNode(version, node); d != "" {
		return d
	}
	for _, mark := range []struct{ in, name string }{
		{"+k3s", "k3s"}, {"+rke2", "rke2"}, {"+k0s", "k0s"}, {"-eks-", "eks"}, {"-gke.", "gke"},
		{"-aliyun", "ack"}, {"-tke.", "tke"}, {"+vmware", "tkg"},
	} {
		if strings.Contains(version, mark.in) {
			return mark.name
		}
	}
	return "kubernetes"
}

// byNode looks at what a distribution puts on its nodes.
func byNode(version string, node *corev1.Node) string {
	if strings.Contains(version, "+k3s") && strings.HasPrefix(node.Name, "k3d-") {
		return "k3d"
	}
	if strings.HasPrefix(node.Spec.ProviderID, "kind://") {
		return "kind"
	}
	if strings.HasPrefix(node.Status.NodeInfo.OSImage, "Talos") {
		return "talos"
	}
	for _, mark := range []struct{ prefix, name string }{
		{"minikube.k8s.io/", "minikube"}, {"microk8s.io/", "microk8s"}, {"node.openshift.io/", "openshift"},
		{"eks.amazonaws.com/", "eks"}, {"cloud.google.com/gke-", "gke"}, {"kubernetes.azure.com/", "aks"},
		{"doks.digitalocean.com/", "doks"}, {"lke.linode.com/", "lke"},
	} {
		for label := range node.Labels {
			if strings.HasPrefix(label, mark.prefix) {
				return mark.name
			}
		}
	}
	return ""
}

// provider returns the cloud or host behind a node's provider ID, or an empty string if that names
// the distribution itself.
func provider(id string) string {
	scheme, _, ok := strings.Cut(id, "://")
	if !ok {
		return ""
	}
	switch scheme {
	case "gce":
		return "gcp"
	case "k3s", "rke2", "kind", "k3d", "minikube":
		return ""
	}
	return scheme
}
