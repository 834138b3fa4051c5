package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// theLogOfAPodThatIsGoneIsReadBack from Loki. The test stands in for Alloy alone: it pushes a line
// of the pod, with the labels that our configuration of Alloy gives.
func theLogOfAPodThatIsGoneIsReadBack(t *testing.T, app string) {
	const line = "a line of a pod that is gone"
	gone := appPod(t, app)
	await.Until(t, "Loki takes the line", func() bool { return pushed(t, gone, line) == nil })
	pipeops(t, "restart", agentName, app, "--wait=2m")
	await.Until(t, "the pod is gone", func() bool {
		_, err := sys.Kube.Clientset.CoreV1().Pods(namespace).Get(t.Context(), gone.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	await.Until(t, "a Runner reads the line", func() bool {
		return strings.Contains(pipeops(t, "logs", agentName, app, "--since", "24h", "--grep", "that is gone"), line)
	})
	assert.NotContains(t, pipeops(t, "logs", agentName, app, "--since", "24h", "--grep", "another"), line)
}

// pushed sends a line of a pod to Loki: https://grafana.com/docs/loki/latest/reference/loki-http-api/
func pushed(t *testing.T, pod *corev1.Pod, line string) error {
	t.Helper()
	labels := map[string]string{
		"namespace": pod.Namespace, "pod": pod.Name, "container": pod.Spec.Containers[0].Name, "app": pod.Labels["pipeops.io/app"],
	}
	values := [][]string{{fmt.Sprint(pod.Status.StartTime.Add(time.Second).UnixNano()), line}}
	body, err := json.Marshal(map[string]any{"streams": []any{map[string]any{"stream": labels, "values": values}}})
	require.NoError(t, err)
	resp, err := http.Post("http://"+serviceAddress(t, "monitoring", "loki")+"/loki/api/v1/push", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		text, err := io.ReadAll(resp.Body)
		return fmt.Errorf("Loki answered %s: %s, %w", resp.Status, text, err)
	}
	return nil
}
