package helm

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Age has a lock be as old as one that nobody renews.
func Age(t *testing.T, config *rest.Config, key runnerapi.Key) {
	t.Helper()
	c, err := New(config, Options{}).clients()
	require.NoError(t, err)
	at, err := c.core.ConfigMaps(key.Namespace).Get(t.Context(), lockName(key.Name), metav1.GetOptions{})
	require.NoError(t, err)
	h := holding{}
	require.NoError(t, json.Unmarshal([]byte(at.Data[lockKey]), &h))
	h.Renewed = h.Renewed.Add(-staleAfter - time.Second)
	text, err := json.Marshal(h)
	require.NoError(t, err)
	at.Data[lockKey] = string(text)
	_, err = c.core.ConfigMaps(key.Namespace).Update(t.Context(), at, metav1.UpdateOptions{})
	require.NoError(t, err)
}
