package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	diagnosed(t, d, runnerapi.CausePortClash, "port 8080 is taken")
	assert.EqualValues(t, 1, *d.ExitCode)
	assert.Len(t, d.LastLines, 2)
	checkFix(t, d)
}

func TestPort_HostPorts(t *testing.T) {
	message := "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) had untolerated taint(s). preemption: not helpful."
	find := func(message string) *runnerapi.Diagnosis {
		p := unscheduled(message, 0)
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}}
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

func TestPort_NotListening(t *testing.T) {
	stay := Stabilization{Unprobed: 30 * time.Second}
	find := func(ready, tried time.Duration, try PortTry, proven bool) (Finding, *runnerapi.Condition) {
		p := pod(up(ready))
		p.Status.PodIP = "192.0.2.1"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(ready)}}
		try.At = now.Add(-tried)
		ev := Evidence{
			Pods: []*corev1.Pod{p}, Stabilization: stay, Proven: proven, Now: now,
			Container: "web", Ports: map[types.UID]PortTry{p.UID: try},
		}
		return Find(ev), Unreachable(&ev)
	}
	refused := PortTry{Refused: 8080}
	f, _ := find(29*time.Second, 0, refused, false)
	assert.Nil(t, f.Diagnosis, "a program takes its time")
	assert.True(t, f.Unsettled)
	f, _ = find(31*time.Second, 5*time.Second, refused, false)
	assert.Nil(t, f.Diagnosis, "it may listen by now")
	assert.True(t, f.Unsettled)
	assert.Contains(t, f.Waiting, "to listen at TCP port 8080")
	f, _ = find(31*time.Second, 5*time.Second, refused, true)
	assert.False(t, f.Unsettled, "an App that did well stays healthy while its new pods are tried")

	f, _ = find(31*time.Second, time.Second, refused, false)
	diagnosed(t, f.Diagnosis, runnerapi.CausePortNotListening, "nothing listens at TCP port 8080, which the App declares: container web of pod web-abc", "listen on 0.0.0.0:8080, or declare in ports the port that it listens at")
	assert.Equal(t, "web", f.Diagnosis.Container)

	f, condition := find(time.Minute, 0, PortTry{}, false)
	assert.Equal(t, Finding{}, f, "it listens, or the pod cannot be reached")
	assert.Nil(t, condition)
	f, condition = find(time.Minute, 0, PortTry{Loopback: 8080}, false)
	assert.Nil(t, f.Diagnosis, "a NetworkPolicy may refuse the agent")
	require.NotNil(t, condition)
	assert.Equal(t, runnerapi.ReasonOnlyOnLoopback, condition.Reason)

	f, condition = find(29*time.Second, 0, PortTry{Idle: 9102}, false)
	assert.Contains(t, f.Waiting, "to listen at TCP port 9102", "a program takes its time")
	assert.Nil(t, condition)
	f, condition = find(time.Minute, 0, PortTry{Idle: 9102}, false)
	assert.Equal(t, Finding{}, f, "another port is open")
	require.NotNil(t, condition)
	assert.Equal(t, runnerapi.ReasonNotListening, condition.Reason)
	assert.Contains(t, condition.Message, "nothing listens at TCP port 9102")
	assert.Contains(t, condition.Fix, "optional: true")
}

func TestPort_Unprobed(t *testing.T) {
	ports := []runnerapi.Port{{Port: 8080}, {Port: 53, Protocol: "UDP"}, {Port: 9090, Protocol: "TCP"}, {Port: 9102, Optional: true}}
	probe := &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 8080}}
	assert.Equal(t, []int32{8080, 9090}, Unprobed(runnerapi.AppSpec{Ports: ports}))
	assert.Empty(t, Unprobed(runnerapi.AppSpec{Ports: ports, Type: runnerapi.TypeJob}))
	for _, probes := range []runnerapi.Probes{{Startup: probe}, {Readiness: probe}, {Liveness: probe}} {
		assert.Empty(t, Unprobed(runnerapi.AppSpec{Ports: ports, Probes: probes}))
	}
}
