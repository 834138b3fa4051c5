package kube_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func approvalOf(change func(*backend.ApprovalRequest)) backend.ApprovalRequest {
	r := backend.ApprovalRequest{Bytes: []byte("image a")}
	r.Runner, r.Command, r.Namespace, r.Name = "ci", "put-app", "shop", "web"
	r.Asked = time.Now().UTC().Truncate(time.Second)
	r.Until = r.Asked.Add(time.Hour)
	change(&r)
	r.Bytes = fmt.Append(r.Bytes, " ", r.Runner, " ", r.Name)
	return r
}

// TestApprovalStore uses them with the agent's own rights, as two replicas would.
func TestApprovalStore(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	one, other := k.Approvals(), k.Approvals()
	same := func(*backend.ApprovalRequest) {}
	use := func(change func(*backend.ApprovalRequest)) (runnerapi.Approval, bool) {
		t.Helper()
		a, approved, err := one.Use(t.Context(), approvalOf(change))
		require.NoError(t, err)
		return a, approved
	}
	first, approved := use(same)
	assert.False(t, approved)
	again, approved := use(same)
	assert.False(t, approved)
	assert.Equal(t, first.ID, again.ID, "the request waits")

	got, err := other.Approve(t.Context(), first.ID)
	require.NoError(t, err)
	assert.Equal(t, "ci", got.Runner)
	assert.NotNil(t, got.Approved)
	for name, change := range map[string]func(*backend.ApprovalRequest){
		"another Runner":  func(r *backend.ApprovalRequest) { r.Runner = "bot" },
		"another command": func(r *backend.ApprovalRequest) { r.Bytes = []byte("image b") },
	} {
		a, approved := use(change)
		assert.False(t, approved, name)
		assert.NotEqual(t, first.ID, a.ID, name)
	}

	var passed atomic.Int32
	var all sync.WaitGroup
	for range 8 { // of both replicas
		all.Go(func() {
			if _, ok, err := other.Use(t.Context(), approvalOf(same)); err == nil && ok {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, passed.Load(), "an approval is good for once")
	_, approved = use(same)
	assert.False(t, approved, "it has to be approved again")

	expired, _ := use(func(r *backend.ApprovalRequest) { r.Name, r.Until = "late", time.Now().Add(-time.Second) })
	_, err = one.Approve(t.Context(), expired.ID)
	require.ErrorContains(t, err, "expired")
	_, err = one.Approve(t.Context(), "nowhere")
	require.ErrorContains(t, err, "there is no request")
	waiting, err := one.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, waiting, 3, "what expired is not listed")

	// An approval that comes in time is not good later.
	object := &appsv1.ControllerRevision{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: "approval-" + expired.ID}, object))
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, "pipeops.io/approved", time.Now().UTC().Format(time.RFC3339))
	require.NoError(t, env.Client.Update(t.Context(), object))
	_, approved = use(func(r *backend.ApprovalRequest) { r.Name = "late" })
	assert.False(t, approved)

	n := 0
	for ; n < 100 && err == nil; n++ {
		_, _, err = one.Use(t.Context(), approvalOf(func(r *backend.ApprovalRequest) { r.Runner, r.Name = "flood", fmt.Sprint(n) }))
	}
	e := &runnerapi.Error{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, runnerapi.Code("too_many_requests"), e.Code)
	assert.Equal(t, 33, n, "a Runner has a bounded number")
	_, _, err = one.Use(t.Context(), approvalOf(func(r *backend.ApprovalRequest) { r.Name = "another" }))
	require.NoError(t, err, "which is not the others'")
}

// TestAuditStore has two replicas write with the agent's own rights,
// and the cluster's administrator tamper with it.
func TestAuditStore(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	store := k.AuditStore()
	const replicas, each = 2, 40
	var all sync.WaitGroup
	began := time.Now()
	for n := range replicas {
		all.Go(func() {
			l := audit.New(store, fmt.Sprint("replica-", n), zerolog.Nop())
			stop := await.Background(t, "the audit log", l.Run)
			for i := range each {
				l.Record(runnerapi.AuditRecord{Runner: "ci", Command: "put-app", Name: fmt.Sprint("web-", i), Time: time.Now().UTC()})
			}
			stop()
		})
	}
	all.Wait()
	t.Logf("%d records of %d replicas are kept after %s", replicas*each, replicas, time.Since(began))
	report, err := audit.Verify(t.Context(), store, runnerapi.AuditHead{})
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	assert.Equal(t, replicas*each, report.Records)
	numbers, err := store.List(t.Context())
	require.NoError(t, err)

	name := client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: fmt.Sprintf("audit-%012d", numbers[1])}
	kept := &appsv1.ControllerRevision{}
	require.NoError(t, env.Client.Get(t.Context(), name, kept))
	changed := kept.DeepCopy()
	changed.Data.Raw = []byte(`{"text":"eA=="}`)
	assert.True(t, apierrors.IsInvalid(env.Client.Update(t.Context(), changed)), "not even the administrator changes what is kept")

	require.NoError(t, env.Client.Delete(t.Context(), kept))
	changed.ResourceVersion, changed.UID = "", ""
	require.NoError(t, env.Client.Create(t.Context(), changed))
	report, err = audit.Verify(t.Context(), store, report.Head)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(report.Problems, "\n"), fmt.Sprintf("the batch at record %d", numbers[1]))

	require.NoError(t, env.Client.Delete(t.Context(), changed))
	report, err = audit.Verify(t.Context(), store, runnerapi.AuditHead{})
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprintf("records %d to %d were removed", numbers[1], numbers[2]-1)}, report.Problems)
}

// TestRecordingStore stores with the agent's own rights, and has the cluster's administrator
// try to change a part.
func TestRecordingStore(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	store := k.RecordingStore()
	const older, newer = "20260101t000000-0123456789abcdef", "20260102t000000-0123456789abcdef"
	large := strings.Repeat("x", recording.MaxPart)
	for _, part := range []struct {
		id   string
		n    int
		text string
	}{{newer, 0, "c"}, {older, 0, "a\n\"\u009b"}, {older, 1, large}, {older, 1, "a second Put"}} {
		require.NoError(t, store.Put(t.Context(), part.id, part.n, []byte(part.text)))
	}
	all, err := store.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []recording.Entry{
		{ID: older, Parts: 2, Last: 1, Bytes: int64(5 + len(large))}, {ID: newer, Parts: 1, Bytes: 1},
	}, all)
	var b bytes.Buffer
	require.NoError(t, recording.Write(t.Context(), store, older, &b))
	assert.Equal(t, "a\n\"\u009b"+large, b.String())
	none, err := store.Get(t.Context(), newer, 1)
	require.NoError(t, err)
	assert.Nil(t, none)

	part := &appsv1.ControllerRevision{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: "recording-" + newer + "-000000"}, part))
	part.Data.Raw = []byte(`{"text":"another"}`)
	require.Error(t, env.Client.Update(t.Context(), part), "the API server refuses to change a recording")

	require.NoError(t, recording.Delete(t.Context(), store, older))
	all, err = store.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
}

// TestTrafficStore shares figures with the agent's own rights, as two replicas would.
func TestTrafficStore(t *testing.T) {
	k, err := kube.New(kubetest.ControlPlane(t).Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	store := k.TrafficStore()
	one, two := traffic.NewSharing(traffic.New(nil), store, zerolog.Nop()), traffic.NewSharing(traffic.New(nil), store, zerolog.Nop())
	web := traffic.Owner{App: traffic.App{Namespace: "production", Name: "web"}, Host: "shop.example.com"}
	for range 3 {
		one.Counters.Host(web).Request(time.Now(), 200, "", time.Millisecond, 1, 2)
		require.NoError(t, one.Share(t.Context()))
	}
	two.Counters.Host(web).Request(time.Now(), 500, "", time.Second, 3, 4)
	all, err := two.All(t.Context())
	require.NoError(t, err)
	got := traffic.Report(all, web.App, traffic.Day, time.Now())
	require.Len(t, got.Hosts, 1)
	assert.Equal(t, []int64{4, 1, 6, 10}, []int64{got.Hosts[0].Requests, got.Hosts[0].Errors, got.Hosts[0].Received, got.Hosts[0].Sent})
	shares, err := store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, shares, 1, "older ones are deleted")
	assert.Equal(t, int64(3), shares[0].Number)
	require.NoError(t, store.Delete(t.Context(), shares[0].Process, shares[0].Number))
	require.NoError(t, store.Delete(t.Context(), shares[0].Process, shares[0].Number))
}
