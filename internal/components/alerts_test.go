package components

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestAlertmanager_SharesToken expects a stable token: the agent's, if both have one.
func TestAlertmanager_SharesToken(t *testing.T) {
	i := &Installer{Client: fake.NewClientset()}
	tokens := func() (agent, alertmanager string) {
		t.Helper()
		require.NoError(t, i.ensureAlertsToken(t.Context(), "pipeops"))
		a, err := i.alertsToken(t.Context(), "pipeops")
		require.NoError(t, err)
		b, err := i.alertsToken(t.Context(), "monitoring")
		require.NoError(t, err)
		return string(a), string(b)
	}
	first, same := tokens()
	assert.Greater(t, len(first), 20)
	assert.Equal(t, first, same)
	again, same := tokens()
	assert.Equal(t, []string{first, first}, []string{again, same})

	owners := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pipeops-alerts"}, Data: map[string][]byte{"token": []byte("the owner's")}}
	_, err := i.Client.CoreV1().Secrets("pipeops").Update(t.Context(), owners, metav1.UpdateOptions{})
	require.NoError(t, err)
	agent, alertmanager := tokens()
	assert.Equal(t, []string{"the owner's", "the owner's"}, []string{agent, alertmanager})

	require.NoError(t, i.removeAlertsToken(t.Context(), "pipeops"))
	kept, err := i.alertsToken(t.Context(), "pipeops")
	require.NoError(t, err)
	assert.Equal(t, "the owner's", string(kept), "an owner's Secret stays")
	gone, err := i.alertsToken(t.Context(), "monitoring")
	require.NoError(t, err)
	assert.Empty(t, gone)
}
