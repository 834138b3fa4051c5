package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
)

// controlPlaneRole marks the servers of k3s.
const controlPlaneRole = rolePrefix + "control-plane"

// K3sServer returns the address and the version of a server of k3s; neither, where the cluster is
// something else.
func (k *Client) K3sServer(ctx context.Context) (address, version string, err error) {
	err = k.pages(ctx, &corev1.NodeList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.NodeList).Items {
			n := &list.(*corev1.NodeList).Items[i]
			if _, server := n.Labels[controlPlaneRole]; version == "" && server && strings.Contains(n.Status.NodeInfo.KubeletVersion, "+k3s") {
				address, version = internalAddress(n), n.Status.NodeInfo.KubeletVersion
			}
		}
		return nil
	})
	return address, version, kubeproblem.From(err, "reading the nodes")
}

func internalAddress(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
