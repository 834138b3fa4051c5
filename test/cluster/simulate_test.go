package cluster

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
)

func named(list []node.Component, name string) (node.Component, bool) {
	i := slices.IndexFunc(list, func(c node.Component) bool { return c.Name == name })
	if i < 0 {
		return node.Component{}, false
	}
	return list[i], true
}

func TestSimulate_OffByDefault(t *testing.T) {
	plain := components(&Cluster{Name: "plain"}, parts.Set{})
	_, simulates := named(plain, "kwok")
	require.False(t, simulates)
	manager, _ := named(plain, "kube-controller-manager")
	require.Contains(t, manager.Command, "--allocate-node-cidrs=true")
	server, _ := named(plain, "kube-apiserver")
	require.Contains(t, server.Command, "--enable-admission-plugins=NodeRestriction")

	large := components(&Cluster{Name: "large", state: state{SimulatedNodes: 5}}, parts.Set{})
	kwok, simulates := named(large, "kwok")
	require.True(t, simulates)
	require.Contains(t, kwok.Command, "--cidr=10.64.128.0/17", "beside the addresses of real pods")
	manager, _ = named(large, "kube-controller-manager")
	require.Contains(t, manager.Command, "--allocate-node-cidrs=false")
	server, _ = named(large, "kube-apiserver")
	require.Contains(t, server.Command, "--enable-admission-plugins=NodeRestriction,PodNodeSelector,PodTolerationRestriction")
}

// TestSimulate_FitsNodes: the annotations select the nodes and tolerate their taint.
func TestSimulate_FitsNodes(t *testing.T) {
	made := simulatedNode(3)
	key, value, _ := strings.Cut(Simulate()[selectorAnnotation], "=")
	require.Equal(t, value, made.Labels[key])
	var tolerations []corev1.Toleration
	require.NoError(t, json.Unmarshal([]byte(Simulate()[tolerationsAnnotation]), &tolerations))
	require.Len(t, tolerations, 1)
	require.Equal(t, made.Spec.Taints[0].Key, tolerations[0].Key)
	require.Equal(t, corev1.TolerationOpExists, tolerations[0].Operator)
	require.Equal(t, SimulatedNode(3), made.Name)
}

func TestOptions_Refuses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	for message, options := range map[string]Options{
		"lower-case letters":         {Name: "Not/Valid"},
		"there can be 0 to":          {Name: "x", SimulatedNodes: maxSimulatedNodes + 1},
		"leave out control-plane-on": {Name: "x", SimulatedNodes: 1, ControlPlaneOnly: true},
	} {
		require.ErrorContains(t, options.check(), message)
	}
	require.NoError(t, Options{Name: "x", SimulatedNodes: maxSimulatedNodes}.check())
}
