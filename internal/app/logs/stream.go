package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxLogLine bounds a line; the rest of a longer one is dropped.
const maxLogLine = 16 << 10

const cut = "… (line cut)"

// podLine is a line with the pod it came from.
type podLine struct {
	pod  *corev1.Pod // nil of a line from the archive
	line runnerapi.LogLine
}

// logStream reads one container's log line by line.
type logStream struct {
	pod    *corev1.Pod
	body   io.ReadCloser
	reader *bufio.Reader
}

func (l *Reader) open(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions) (*logStream, error) {
	body, err := l.podLogs.Pods(pod.Namespace).GetLogs(pod.Name, opts).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the log of pod %s: %w", pod.Name, err)
	}
	return &logStream{pod: pod, body: body, reader: bufio.NewReaderSize(body, 4<<10)}, nil
}

func (s *logStream) close() { _ = s.body.Close() }

// next returns the next line, or io.EOF.
func (s *logStream) next() (podLine, error) {
	text, err := readLine(s.reader)
	if err != nil {
		return podLine{}, err
	}
	at, line := splitTime(text)
	return podLine{pod: s.pod, line: runnerapi.LogLine{Time: at, Pod: s.pod.Name, Line: line}}, nil
}

// readLine reads up to a line's end and keeps the first maxLogLine bytes.
func readLine(r *bufio.Reader) (string, error) {
	var line strings.Builder
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLogLine - line.Len(); room > 0 {
			line.Write(part[:min(len(part), room)])
		}
		long = long || line.Len() == maxLogLine
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (line.Len() == 0 || !errors.Is(err, io.EOF)):
			return "", err
		}
		return shown(line.String(), long), nil
	}
}

// shown returns a line as a log has it. long marks one whose rest was dropped.
func shown(text string, long bool) string {
	text = strings.TrimRight(text, "\r\n")
	if long {
		text += cut
	}
	return strings.ToValidUTF8(text, "�")
}

// splitTime takes the kubelet's time stamp off a line.
func splitTime(text string) (time.Time, string) {
	stamp, line, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return time.Time{}, text
	}
	return at.UTC(), line
}

// logOptions returns Kubernetes' for the first look at a pod.
func (r *reading) logOptions() *corev1.PodLogOptions {
	o := &corev1.PodLogOptions{Container: r.container(), Timestamps: true, Previous: r.opts.Previous}
	if r.opts.Tail >= 0 {
		o.TailLines = ptr.To(int64(r.opts.Tail))
	}
	if r.opts.Since > 0 {
		o.SinceTime = ptr.To(metav1.NewTime(r.now().Add(-r.opts.Since)))
	}
	return o
}
