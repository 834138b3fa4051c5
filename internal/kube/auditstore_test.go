package kube_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

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
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			for i := range each {
				l.Record(runnerapi.AuditRecord{Runner: "ci", Command: "put-app", Name: fmt.Sprint("web-", i), Time: time.Now().UTC()})
			}
			cancel()
			assert.NoError(t, await.Receive(t, done, "the end of the audit log"))
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
