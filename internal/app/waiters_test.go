package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/event"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// waiting bounds the waits of others' tools.
const waiting = time.Minute

// helmWait returns a wait for an App as that of `helm install --wait` for one that a chart brings.
func helmWait(t *testing.T, env *kubetest.Env, ns, name string) func() error {
	t.Helper()
	getter, err := kubeclient.NewGetter(env.Admin, ns)
	require.NoError(t, err)
	client := kube.New(getter)
	client.Namespace = ns
	list, err := client.Build(strings.NewReader(fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\n", v1alpha1.GroupVersion, v1alpha1.Kind, name)), false)
	require.NoError(t, err)
	require.Len(t, list, 1)
	waiter, err := client.GetWaiter(kube.StatusWatcherStrategy)
	require.NoError(t, err)
	return func() error { return waiter.Wait(list, waiting) }
}

// fluxCheck returns the state at which Flux's health check of an App ends. Flux polls with this
// poller until the state is Current or Failed.
func fluxCheck(t *testing.T, env *kubetest.Env, ns, name string) (state status.Status, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting)
	defer cancel()
	poller := polling.NewStatusPoller(env.Client, env.Client.RESTMapper(), polling.Options{})
	id := object.ObjMetadata{Namespace: ns, Name: name, GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.Kind}}
	for e := range poller.Poll(ctx, object.ObjMetadataSet{id}, polling.PollOptions{PollInterval: 100 * time.Millisecond}) {
		require.NotEqual(t, event.ErrorEvent, e.Type, "%v", e.Error)
		if e.Type == event.ResourceUpdateEvent && (e.Resource.Status == status.CurrentStatus || e.Resource.Status == status.FailedStatus) {
			state, message = e.Resource.Status, e.Resource.Message
			cancel() // which closes the channel
		}
	}
	return state, message
}
