package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDistribution_Detected(t *testing.T) {
	for _, c := range []struct {
		version, node, label, providerID, os string
		distribution, provider               string
	}{
		{version: "v1.36.3", distribution: "kubernetes"},
		{version: "v1.34.1+k3s1", node: "vm-1", providerID: "k3s://vm-1", distribution: "k3s"},
		{version: "v1.34.1+k3s1", node: "k3d-dev-server-0", providerID: "k3s://k3d-dev-server-0", distribution: "k3d"},
		{version: "v1.33.4+rke2r1", node: "vm-1", providerID: "rke2://vm-1", distribution: "rke2"},
		{version: "v1.34.0", node: "kind-control-plane", providerID: "kind://docker/kind/kind-control-plane", distribution: "kind"},
		{version: "v1.34.0", node: "minikube", label: "minikube.k8s.io/version", distribution: "minikube"},
		{version: "v1.33.1-eks-595af52", providerID: "aws:///eu-west-1a/i-0abc", distribution: "eks", provider: "aws"},
		{version: "v1.33.4-gke.1350000", label: "cloud.google.com/gke-nodepool", providerID: "gce://p/z/n", distribution: "gke", provider: "gcp"},
		{version: "v1.32.5", label: "kubernetes.azure.com/cluster", providerID: "azure:///subscriptions/x", distribution: "aks", provider: "azure"},
		{version: "v1.31.9", label: "node.openshift.io/os_id", providerID: "aws:///x", distribution: "openshift", provider: "aws"},
		{version: "v1.33.1", label: "doks.digitalocean.com/node-id", providerID: "digitalocean://1", distribution: "doks", provider: "digitalocean"},
		{version: "v1.34.0", label: "microk8s.io/cluster", distribution: "microk8s"},
		{version: "v1.34.1+k0s", distribution: "k0s"},
		{version: "v1.34.1", os: "Talos (v1.11.2)", providerID: "hcloud://7", distribution: "talos", provider: "hcloud"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}}
		n.Spec.ProviderID, n.Status.NodeInfo.OSImage = c.providerID, c.os
		if c.label != "" {
			n.Labels = map[string]string{c.label: "x"}
		}
		assert.Equal(t, c.distribution, distribution(c.version, n), c.version)
		assert.Equal(t, c.provider, provider(c.providerID), c.providerID)
	}
}

func TestDigest_NoConcatenationCollisions(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	s := func(data map[string][]byte) string { return digest(key, "", data) }
	assert.NotEqual(t, s(map[string][]byte{"a": []byte("bc")}), s(map[string][]byte{"ab": []byte("c")}))
	assert.NotEqual(t, s(map[string][]byte{"a": []byte("b"), "c": nil}), s(map[string][]byte{"a": []byte("bc")}))
	assert.NotEqual(t, s(nil), digest([]byte("another key"), "", nil))
}
