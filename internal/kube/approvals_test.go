package kube_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func approvalOf(change func(*backend.ApprovalRequest)) backend.ApprovalRequest {
	r := backend.ApprovalRequest{Method: "PUT", Path: "/v1/namespaces/shop/apps/web", Query: "wait=1m", Body: []byte(`{"image":"a"}`)}
	r.Runner, r.Command, r.Namespace, r.Name = "ci", "put-app", "shop", "web"
	r.Asked = time.Now().UTC().Truncate(time.Second)
	r.Until = r.Asked.Add(time.Hour)
	change(&r)
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
		"another Runner":    func(r *backend.ApprovalRequest) { r.Runner = "bot" },
		"another command":   func(r *backend.ApprovalRequest) { r.Command = "delete-app" },
		"another namespace": func(r *backend.ApprovalRequest) { r.Namespace = "web" },
		"another name":      func(r *backend.ApprovalRequest) { r.Name = "api" },
		"another query":     func(r *backend.ApprovalRequest) { r.Query = "adopt=true" },
		"another body":      func(r *backend.ApprovalRequest) { r.Body = []byte(`{"image":"b"}`) },
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
	assert.Len(t, waiting, 7, "what expired is not listed")

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
