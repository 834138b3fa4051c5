package kube

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestApproval_NotTakenIsRefused expects an approval or an error, and never both.
func TestApproval_NotTakenIsRefused(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	mine := waiting{Approval: runnerapi.Approval{ID: "0123", Runner: "ci", Until: now.Add(time.Hour)}, Fingerprint: "0123"}
	raw, err := json.Marshal(mine)
	require.NoError(t, err)
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "pipeops", Name: approvalPrefix + mine.ID, Annotations: map[string]string{objectmeta.Approved: now.Format(time.RFC3339)}},
		Data:       runtime.RawExtension{Raw: raw},
	}
	unreadable := kept.DeepCopy()
	unreadable.Data.Raw = []byte("{")
	down := errors.New("the API server is down")
	for name, objects := range map[string][]client.Object{"approved": {kept}, "not asked yet": nil, "unreadable": {unreadable}} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return down },
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return down },
			}).Build()
			a := Approvals{&Journal{Client: &Client{opts: Options{Namespace: "pipeops"}, client: c}, now: func() time.Time { return now }}}
			approval, approved, err := a.use(t.Context(), mine)
			require.Error(t, err)
			assert.False(t, approved)
			assert.Zero(t, approval)
		})
	}
}
