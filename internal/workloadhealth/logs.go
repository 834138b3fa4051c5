package workloadhealth

import (
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// ReadLog reads the last lines of a container, or of its run before.
type ReadLog func(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error)

const (
	// tailLines and tailBytes bound what is read of a log; the kubelet counts bytes from the
	// first of these lines. fewLines is for a log whose lines are long.
	tailLines, fewLines = 200, 10
	tailBytes           = 256 << 10
	// logTimeout bounds one read, maxLogs how many are read for one look at a workload.
	logTimeout = 5 * time.Second
	maxLogs    = 3
)

// Logs reads them from the API server.
func Logs(pods corev1client.PodsGetter) ReadLog {
	return func(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, logTimeout)
		defer cancel()
		read := func(lines int64) (string, error) {
			opts := &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines, LimitBytes: new(int64(tailBytes))}
			body, err := pods.Pods(pod.Namespace).GetLogs(pod.Name, opts).Stream(ctx)
			if err != nil {
				return "", err
			}
			defer func() { _ = body.Close() }()
			text, err := io.ReadAll(io.LimitReader(body, tailBytes))
			return string(text), err
		}
		text, err := read(tailLines)
		if err == nil && len(text) == tailBytes { // its end is missing
			return read(fewLines)
		}
		return text, err
	}
}

// lastWords adds the last lines of a log if the termination message does not explain why the
// container ended. The kubelet writes at most 2 KiB there, and nothing at all unless the pod asks
// for it.
func (g Gatherer) lastWords(ctx context.Context, ev *diagnose.Evidence) {
	if g.Logs == nil {
		return
	}
	left := maxLogs
	for i, pod := range ev.Pods {
		for _, end := range diagnose.WantsLastLines(pod) {
			if left == 0 {
				return
			}
			left--
			text, err := g.Logs(ctx, pod, end.Container, end.Previous)
			if err != nil || text == "" { // it may be gone
				continue
			}
			ev.Pods[i] = diagnose.WithLastLines(ev.Pods[i], end, text)
		}
	}
}
