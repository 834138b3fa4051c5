package diagnose

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPort_Taken has last lines as runtimes write them.
func TestPort_Taken(t *testing.T) {
	for line, port := range map[string]string{
		"2026/05/04 12:00:00 cannot listen: listen tcp :8080: bind: address already in use":                      "port 8080",
		"Error: listen EADDRINUSE: address already in use :::3000":                                               "port 3000",
		"OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)":                                          "port 8000",
		"2026/05/04 12:00:00 [emerg] 1#1: bind() to 0.0.0.0:80 failed (98: Address already in use)":              "port 80",
		`Error: Os { code: 98, kind: AddrInUse, message: "Address already in use" }`:                             "its port",
		"Address already in use (os error 98)":                                                                   "its port",
		"Web server failed to start. Port 8080 was already in use.":                                              "port 8080",
		`LOG:  could not bind IPv4 address "0.0.0.0": Address already in use`:                                    "its port",
		"java.net.BindException: Address already in use":                                                         "its port",
		"[::]:9090: bind: address already in use\nexiting":                                                       "port 9090",
		"12:00:00 WARN retrying\nlisten tcp 127.0.0.1:6379: bind: address already in use\n12:00:01 giving up: 3": "port 6379",
	} {
		got, yes := portTaken(line)
		assert.True(t, yes, line)
		assert.Equal(t, port, got, line)
	}
	for _, line := range []string{"", "dial tcp 10.0.0.1:80: connect: connection refused", "the name is already in use"} {
		_, yes := portTaken(line)
		assert.False(t, yes, line)
	}
}

func TestPort_Clash(t *testing.T) {
	p := pod(endedWith(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "starting\nlisten tcp :8080: bind: address already in use\n"}))
	d := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	require.NotNil(t, d)
	assert.Equal(t, runnerapi.CausePortClash, d.Cause)
	assert.Contains(t, d.Message, "port 8080 is taken")
	assert.EqualValues(t, 1, *d.ExitCode)
	assert.Len(t, d.LastLines, 2)
	checkFix(t, d)
}

func TestPort_HostPorts(t *testing.T) {
	message := "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) had untolerated taint(s). preemption: not helpful."
	find := func(message string) *runnerapi.Diagnosis {
		p := pod(corev1.ContainerStatus{})
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}}
		p.Status.ContainerStatuses = nil
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		}}
		d := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
		require.NotNil(t, d)
		checkFix(t, d)
		return d
	}
	d := find(message)
	assert.Equal(t, runnerapi.CausePortClash, d.Cause)
	assert.Contains(t, d.Message, "no node has host port 9100 free")
	d = find("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't have free ports for the requested pod ports.")
	assert.Equal(t, runnerapi.CauseUnschedulable, d.Cause, "neither alone is the reason")
	assert.Contains(t, d.Fix, "resources.requests.cpu")
	assert.Contains(t, d.Fix, "host port 9100")
}
