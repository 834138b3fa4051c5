package update

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// cluster is a Deployment that the test moves; test/selfupdate has a real one.
type cluster struct {
	own    kube.Own
	pods   []*corev1.Pod
	err    error // of reading
	refuse error // of writing
}

func newCluster(image string) *cluster {
	replicas := int32(2)
	c := &cluster{own: kube.Own{Image: image, Deployment: &appsv1.Deployment{}}}
	c.own.Deployment.Spec.Replicas = &replicas
	c.rolled(2)
	return c
}

// rolled has that many pods of the newest spec.
func (c *cluster) rolled(n int32) {
	c.own.Deployment.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: n, AvailableReplicas: n}
}

func (c *cluster) Own(context.Context) (kube.Own, error) { return c.own, c.err }

func (c *cluster) SetOwn(_ context.Context, _ kube.Own, image string, note []byte) error {
	if c.refuse != nil {
		return c.refuse
	}
	if c.own.Note = note; image != "" {
		c.own.Image = image
		c.rolled(0)
	}
	return nil
}

func (c *cluster) PodsOf(context.Context, kube.Own, string) ([]*corev1.Pod, error) {
	return c.pods, nil
}

func (c *cluster) record(t *testing.T) Record {
	t.Helper()
	var r Record
	require.NoError(t, json.Unmarshal(c.own.Note, &r))
	return r
}

func podsOf(c *cluster, now *time.Time) Pods {
	return Pods{Cluster: c, Deadline: time.Minute, Now: func() time.Time { return *now }}
}

func candidate(t *testing.T) Candidate {
	t.Helper()
	offer := offerOf(t, "v1.1.0")
	m, err := rulesOf(t, "v1.0.0").open(offer)
	require.NoError(t, err)
	return Candidate{Offer: offer, Manifest: m, From: "v1.0.0"}
}

func TestPods_RollBackAfterDeadline(t *testing.T) {
	const before, after = "registry.example.com:5000/pipeops/agent:v1.0.0", "registry.example.com:5000/pipeops/agent@sha256:" + sum
	now, c := noon, newCluster(before)
	p := podsOf(c, &now)
	require.NoError(t, p.Fits(candidate(t).Manifest))
	require.NoError(t, p.Try(t.Context(), candidate(t)))
	want := Record{State: controlapi.UpdateUpdating, Offer: "o-v1.1.0", From: "v1.0.0", To: "v1.1.0", FromImage: before, ToImage: after, Deadline: noon.Add(2 * time.Minute)}
	assert.Equal(t, want, c.record(t), "a minute for each replica")
	assert.Equal(t, after, c.own.Image)

	recalled, err := p.Recall(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Watch(t.Context(), recalled))
	assert.Equal(t, want, c.record(t), "it is not time yet")

	now = noon.Add(3 * time.Minute)
	require.NoError(t, p.Watch(t.Context(), recalled))
	assert.Equal(t, before, c.own.Image)
	assert.Equal(t, controlapi.UpdateFailed, c.record(t).State)
	assert.Equal(t, "it was not ready in time, and was rolled back: Kubernetes made no pod for it", c.record(t).Reason)
	note := c.own.Note
	require.NoError(t, p.Watch(t.Context(), recalled))
	assert.Equal(t, note, c.own.Note, "what another replica has ended stays")
}

func TestPods_RolledOutIsDone(t *testing.T) {
	now, c := noon, newCluster("pipeops/agent:v1.0.0")
	p := podsOf(c, &now)
	require.NoError(t, p.Try(t.Context(), candidate(t)))
	r := c.record(t)
	c.rolled(1)
	require.NoError(t, p.Watch(t.Context(), r))
	assert.Equal(t, controlapi.UpdateUpdating, c.record(t).State, "one of two replicas")
	c.rolled(2)
	now = noon.Add(time.Hour)
	require.NoError(t, p.Watch(t.Context(), r))
	assert.Equal(t, controlapi.UpdateDone, c.record(t).State, "late is not failed")
	assert.Equal(t, "pipeops/agent@sha256:"+sum, c.own.Image)
}

func TestPods_KeepOtherImage(t *testing.T) {
	now, c := noon, newCluster("pipeops/agent:v1.0.0")
	p := podsOf(c, &now)
	require.NoError(t, p.Try(t.Context(), candidate(t)))
	c.own.Image = "pipeops/agent:v1.2.0"
	now = noon.Add(time.Hour)
	require.NoError(t, p.Watch(t.Context(), c.record(t)))
	assert.Equal(t, "pipeops/agent:v1.2.0", c.own.Image)
	assert.Contains(t, c.record(t).Reason, "the image of the Deployment was changed to pipeops/agent:v1.2.0")
}

func TestPods_BusyDeployment(t *testing.T) {
	now, c := noon, newCluster("pipeops/agent:v1.0.0")
	p := podsOf(c, &now)
	c.rolled(1)
	require.ErrorIs(t, p.Try(t.Context(), candidate(t)), errBusy)
	c.rolled(2)
	c.refuse = problem.Errorf(problem.Busy, "read it again", "it has changed")
	require.NoError(t, p.Try(t.Context(), candidate(t)), "another replica was first")
	assert.Nil(t, c.own.Note)
	c.err = problem.Errorf(problem.Forbidden, "grant it", "forbidden")
	_, err := p.Recall(t.Context())
	require.ErrorContains(t, err, "self-update.yaml")
}

func TestFits_RefusesMissingImage(t *testing.T) {
	var refused *RefusedError
	require.ErrorAs(t, Pods{}.Fits(&release.Manifest{}), &refused)
	require.ErrorAs(t, Service{}.Fits(&release.Manifest{}), &refused)
}

// TestPods_TroubleNamesCause, in the pod's own words where it can tell.
func TestPods_TroubleNamesCause(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"detail":"not ready: tunnel: connecting"}`))
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: int32(number)}}}}}}
	pod.Name = "p"
	pod.Status = corev1.PodStatus{PodIP: host, Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	now, c := noon, newCluster("pipeops/agent:v1.0.0")
	c.pods = []*corev1.Pod{pod}
	p := podsOf(c, &now)
	assert.Equal(t, "pod p says not ready: tunnel: connecting", p.trouble(t.Context(), c.own))

	pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "agent", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "oh no\n"}}}
	said := p.trouble(t.Context(), c.own)
	assert.Contains(t, said, "exit code 3")
	assert.Contains(t, said, "oh no")
}

func TestPinned(t *testing.T) {
	for from, to := range map[string]string{
		"pipeops/agent:dev": "pipeops/agent", "pipeops/agent": "pipeops/agent", "localhost:5000/agent": "localhost:5000/agent",
		"r.example.com/a/b:v1@sha256:" + sum: "r.example.com/a/b",
	} {
		got, err := pinned(from, "sha256:"+sum)
		require.NoError(t, err)
		assert.Equal(t, to+"@sha256:"+sum, got)
	}
	_, err := pinned("Not An Image", "sha256:"+sum)
	require.Error(t, err)
}

func FuzzDecodeNote(f *testing.F) {
	f.Add([]byte(`{"state":"updating","deadline":"2026-11-21T12:00:00Z"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r := decodeNote(text); len(text) > maxNote && r != (Record{}) {
			t.Fatal("a note that is too long was read")
		}
	})
}
