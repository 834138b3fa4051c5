package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// maxReadiness bounds what is read of an agent's answer, in bytes.
const maxReadiness = 64 << 10

// Readiness is what an agent reports of itself.
type Readiness struct {
	Ready   bool
	Version string
	Missing []string // why it is not ready, as CHECK: STATE
	Worse   []string // what is wrong although it is ready
}

// DecodeReadiness reads the answer of an agent's health port.
func DecodeReadiness(body []byte) (Readiness, error) {
	var answer struct{ Status, Version, Detail, Degraded string }
	var plain struct{ Status any }
	if len(body) > maxReadiness {
		return Readiness{}, fmt.Errorf("the agent's answer has more than %d bytes", maxReadiness)
	}
	if err := json.Unmarshal(body, &plain); err != nil {
		return Readiness{}, fmt.Errorf("the answer is not an agent's: %w", err)
	}
	_ = json.Unmarshal(body, &answer) // a problem's status is a number, which leaves only that empty
	return Readiness{
		Ready: answer.Status == "ready", Version: answer.Version,
		Missing: list(strings.TrimPrefix(answer.Detail, "not ready: ")), Worse: list(answer.Degraded),
	}, nil
}

// list returns the lines of a text. The line about tunnels has its own semicolons, and is
// followed by that about the control plane, if by any.
func list(text string) (lines []string) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, "; ") {
		if n := len(lines) - 1; n >= 0 && strings.HasPrefix(lines[n], "tunnel") && !strings.HasPrefix(part, "tunnel") && !strings.HasPrefix(part, "control plane: ") {
			lines[n] += "; " + part
			continue
		}
		lines = append(lines, part)
	}
	return lines
}

// podReadiness asks the health port of a pod, through the API server and with its caller's right to
// do so.
func podReadiness(core rest.Interface) func(context.Context, *corev1.Pod) (Readiness, error) {
	return func(ctx context.Context, pod *corev1.Pod) (Readiness, error) {
		body, err := core.Get().Namespace(pod.Namespace).Resource("pods").SubResource("proxy").
			Name(pod.Name + ":" + strconv.Itoa(healthPort(pod))).Suffix("readyz").DoRaw(ctx)
		if r, decodeErr := DecodeReadiness(body); decodeErr == nil && (r.Ready || len(r.Missing) > 0 && err != nil && strings.Contains(string(body), "not ready: ")) {
			return r, nil
		}
		return Readiness{}, err
	}
}

// healthPort returns the port of a pod's readiness probe.
func healthPort(pod *corev1.Pod) int {
	for _, c := range pod.Spec.Containers {
		if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil {
			continue
		}
		port := c.ReadinessProbe.HTTPGet.Port
		if port.Type == intstr.Int {
			return port.IntValue()
		}
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				return int(p.ContainerPort)
			}
		}
	}
	return 8080
}
