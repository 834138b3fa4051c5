package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// theLogOfAPodThatIsGoneIsReadBack from Loki, to which the stand-in for Alloy has sent it.
func theLogOfAPodThatIsGoneIsReadBack(t *testing.T, app string) {
	gone := appPod(t, app)
	log, err := sys.Kube.Clientset.CoreV1().Pods(namespace).GetLogs(gone.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(log), "\n")
	require.NotEmpty(t, line)
	pipeops(t, "restart", agentName, app, "--wait=2m")
	await.Until(t, "the pod is gone", func() bool {
		_, err := sys.Kube.Clientset.CoreV1().Pods(namespace).Get(t.Context(), gone.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	await.Until(t, "a Runner reads the line", func() bool {
		return strings.Contains(pipeops(t, "logs", agentName, app, "--since", "24h", "--grep", line), line)
	})
	assert.NotContains(t, pipeops(t, "logs", agentName, app, "--since", "24h", "--grep", "another text"), line)
}
