package logs

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/podlog"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Archive has lines that Kubernetes has no more.
type Archive interface {
	// Lines reads an App's lines from a time on, in order. The returned function returns the next
	// line, or io.EOF. If there is no archive, that is the first thing it returns.
	Lines(key runnerapi.Key, container string, since time.Time, grep string) func(context.Context) (runnerapi.LogLine, error)
}

// UseArchive sets the archive. It must be called before the first call for a log.
func (l *Reader) UseArchive(a Archive) { l.archive = a }

// wantsArchive reports whether the call is for a whole range of time. The other calls are about
// the pods that there are.
func (r *reading) wantsArchive() bool {
	o := r.opts
	return r.archive != nil && o.Since > 0 && o.Tail < 0 && !o.Follow && !o.Previous && !o.UntilDone
}

// archived reads lines of the archive that the pods' own logs lack: of pods that are gone, of
// earlier runs of a container, and of files that the kubelet has rotated.
type archived struct {
	read func() (runnerapi.LogLine, error)
	// from has, of each pod that is read, the first line that Kubernetes has.
	from map[string]time.Time
	err  error // why it broke off
}

// addArchive adds the archive to streams that begin with their first lines.
func (r *reading) addArchive(ctx context.Context, m *merge) (*archived, error) {
	next := r.archive.Lines(r.app.Key(), r.container(), r.now().Add(-r.opts.Since), r.opts.Grep)
	a := &archived{from: map[string]time.Time{}, read: func() (runnerapi.LogLine, error) { return next(ctx) }}
	for _, h := range m.heads {
		a.from[h.line.line.Pod] = h.line.line.Time
	}
	return a, m.add(a)
}

// next implements source. An archive that fails keeps no line of a living pod back: it ends, and
// the error is for the end of the log.
func (a *archived) next() (podLine, error) {
	for {
		line, err := a.read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				a.err = err
			}
			return podLine{}, io.EOF
		}
		if from, living := a.from[line.Pod]; !living || line.Time.Before(from) {
			line.Line = podlog.Clean(line.Line)
			return podLine{line: line}, nil
		}
	}
}

func (a *archived) close() {}
