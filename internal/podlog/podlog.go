// Package podlog reads the logs of containers line by line.
package podlog

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxLine bounds a line, in bytes; the rest of a longer one is dropped.
const MaxLine = 16 << 10

const cut = "… (line cut)"

// Options returns Kubernetes' options for a container's log, with the kubelet's time stamps.
func Options(container string, o runnerapi.LogOptions, now time.Time) *corev1.PodLogOptions {
	of := &corev1.PodLogOptions{Container: container, Timestamps: true, Follow: o.Follow, Previous: o.Previous}
	if o.Tail >= 0 {
		of.TailLines = new(int64(o.Tail))
	}
	if o.Since > 0 {
		of.SinceTime = new(metav1.NewTime(now.Add(-o.Since)))
	}
	return of
}

// Stream is the log of one container, whose lines have time stamps.
type Stream struct {
	pod   string
	body  io.ReadCloser
	lines *bufio.Reader
}

// Open begins to read a log. The caller closes it.
func Open(ctx context.Context, pods corev1client.PodsGetter, pod *corev1.Pod, o *corev1.PodLogOptions) (*Stream, error) {
	body, err := pods.Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return &Stream{pod: pod.Name, body: body, lines: bufio.NewReaderSize(body, 4<<10)}, nil
}

// Close ends the reading.
func (s *Stream) Close() { _ = s.body.Close() } // it was only read

// Next returns the next line, or io.EOF.
func (s *Stream) Next() (runnerapi.LogLine, error) {
	text, err := readLine(s.lines)
	if err != nil {
		return runnerapi.LogLine{}, err
	}
	at, line := splitTime(text)
	return runnerapi.LogLine{Time: at, Pod: s.pod, Line: Clean(line)}, nil
}

// readLine reads up to a line's end. It keeps enough of a long line for Clean to cut it.
func readLine(r *bufio.Reader) (string, error) {
	const most = len(time.RFC3339Nano) + 1 + MaxLine + 1
	var line strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		line.Write(part[:min(len(part), most-line.Len())])
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (line.Len() == 0 || !errors.Is(err, io.EOF)):
			return "", err
		}
		return line.String(), nil
	}
}

// Clean returns a line as it is shown: valid text without a line end, and not too long.
func Clean(line string) string {
	line = strings.TrimRight(line, "\r\n")
	if len(line) > MaxLine {
		line = line[:MaxLine] + cut
	}
	return strings.ToValidUTF8(line, "�")
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
