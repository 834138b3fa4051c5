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

func TestPort_NotListening(t *testing.T) {
	stay := Stabilization{Unprobed: 30 * time.Second}
	find := func(ready, tried time.Duration, try PortTry, proven bool) (Finding, *runnerapi.Condition) {
		p := pod(corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(ready)}}})
		p.Status.PodIP = "192.0.2.1"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(ready)}}
		try.At = now.Add(-tried)
		ev := Evidence{
			Pods: []*corev1.Pod{p}, Stabilization: stay, Proven: proven, Now: now,
			Container: "web", Ports: map[types.UID]PortTry{p.UID: try},
		}
		return Find(ev), OnlyOnLoopback(&ev)
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
	require.NotNil(t, f.Diagnosis)
	assert.Equal(t, runnerapi.CausePortNotListening, f.Diagnosis.Cause)
	assert.Equal(t, "web", f.Diagnosis.Container)
	assert.Contains(t, f.Diagnosis.Message, "nothing listens at TCP port 8080, which the App declares: container web of pod web-abc")
	assert.Contains(t, f.Diagnosis.Fix, "listen on 0.0.0.0:8080, or declare in ports the port that it listens at")
	checkFix(t, f.Diagnosis)

	f, condition := find(time.Minute, 0, PortTry{}, false)
	assert.Equal(t, Finding{}, f, "it listens, or the pod cannot be reached")
	assert.Nil(t, condition)
	f, condition = find(time.Minute, 0, PortTry{Loopback: 8080}, false)
	assert.Nil(t, f.Diagnosis, "a NetworkPolicy may refuse the agent")
	require.NotNil(t, condition)
	assert.Equal(t, runnerapi.ReasonOnlyOnLoopback, condition.Reason)
}

func TestPort_Unprobed(t *testing.T) {
	ports := []runnerapi.Port{{Port: 8080}, {Port: 53, Protocol: "UDP"}, {Port: 9090, Protocol: "TCP"}}
	probe := &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 8080}}
	assert.Equal(t, []int32{8080, 9090}, Unprobed(runnerapi.AppSpec{Ports: ports}))
	assert.Empty(t, Unprobed(runnerapi.AppSpec{Ports: ports, Type: runnerapi.TypeJob}))
	for _, probes := range []runnerapi.Probes{{Startup: probe}, {Readiness: probe}, {Liveness: probe}} {
		assert.Empty(t, Unprobed(runnerapi.AppSpec{Ports: ports, Probes: probes}))
	}
}
