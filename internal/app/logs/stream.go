package logs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/podlog"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// podLine is a line with the pod it came from.
type podLine struct {
	pod  *corev1.Pod // nil of a line from the archive
	line runnerapi.LogLine
}

// logStream reads one container's log line by line.
type logStream struct {
	pod *corev1.Pod
	*podlog.Stream
}

func (l *Reader) open(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions) (*logStream, error) {
	stream, err := podlog.Open(ctx, l.podLogs, pod, opts)
	if err != nil {
		return nil, fmt.Errorf("open the log of pod %s: %w", pod.Name, err)
	}
	return &logStream{pod, stream}, nil
}

func (s *logStream) close() { s.Close() }

// next returns the next line, or io.EOF.
func (s *logStream) next() (podLine, error) {
	line, err := s.Next()
	return podLine{pod: s.pod, line: line}, err
}

// logOptions returns Kubernetes' for the first look at a pod.
func (r *reading) logOptions() *corev1.PodLogOptions {
	o := podlog.Options(r.container(), r.opts, r.now())
	o.Follow = false
	return o
}
