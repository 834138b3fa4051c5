package logs

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/podlog"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// written is a source and an archive with these lines.
type written struct {
	lines []runnerapi.LogLine
	err   error
}

func (w *written) take() (runnerapi.LogLine, error) {
	if len(w.lines) == 0 {
		if w.err != nil {
			return runnerapi.LogLine{}, w.err
		}
		return runnerapi.LogLine{}, io.EOF
	}
	line := w.lines[0]
	w.lines = w.lines[1:]
	return line, nil
}

func (w *written) next() (podLine, error) {
	line, err := w.take()
	return podLine{line: line, pod: &corev1.Pod{}}, err
}

func (w *written) close() {}

func (w *written) Lines(runnerapi.Key, string, time.Time, string) func(context.Context) (runnerapi.LogLine, error) {
	return func(context.Context) (runnerapi.LogLine, error) { return w.take() }
}

func at(second int, pod, text string) runnerapi.LogLine {
	return runnerapi.LogLine{Time: time.Unix(int64(second), 0), Pod: pod, Line: text}
}

// TestArchive_HasLinesOfGonePods merges a living pod's log with an archive of that pod and of
// one that is gone.
func TestArchive_HasLinesOfGonePods(t *testing.T) {
	failed := errors.New("out of disk")
	for _, err := range []error{nil, failed} {
		archive := &written{err: err, lines: []runnerapi.LogLine{
			at(1, "gone", "first"), at(2, "living", "rotated"), at(3, "living", "has this itself"), at(4, "gone", "last words\n"),
			at(4, "gone", strings.Repeat("x", podlog.MaxLine+1)),
		}}
		r := &reading{
			Reader: &Reader{archive: archive, now: time.Now}, app: &v1alpha1.App{}, opts: runnerapi.LogOptions{Since: time.Hour, Tail: -1},
		}
		require.True(t, r.wantsArchive())
		m := &merge{}
		require.NoError(t, m.add(&written{lines: []runnerapi.LogLine{at(3, "living", "has this itself"), at(5, "living", "now")}}))
		a, added := r.addArchive(t.Context(), m)
		require.NoError(t, added)
		var texts []string
		for m.Len() > 0 {
			texts = append(texts, m.heads[0].line.line.Line)
			require.NoError(t, m.advance())
		}
		assert.Equal(t, []string{"first", "rotated", "has this itself", "last words", strings.Repeat("x", podlog.MaxLine) + "… (line cut)", "now"}, texts)
		assert.Equal(t, err, a.err, "it is for the end of the log")
	}
}

func TestArchive_OnlyWholeRanges(t *testing.T) {
	for _, opts := range []runnerapi.LogOptions{
		{Tail: -1}, {Since: time.Hour, Tail: 10}, {Since: time.Hour, Tail: -1, Follow: true},
		{Since: time.Hour, Tail: -1, Previous: true}, {Since: time.Hour, Tail: -1, UntilDone: true},
	} {
		r := &reading{Reader: &Reader{archive: &written{}}, opts: opts}
		assert.False(t, r.wantsArchive(), "%+v", opts)
	}
}

// TestFollow_EndsWithApp has another App of the same name, whose pods must not be read.
func TestFollow_EndsWithApp(t *testing.T) {
	of := func(uid types.UID) *v1alpha1.App {
		return &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid}}
	}
	scheme, err := appcache.NewScheme()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		now  []client.Object
		goes bool
	}{
		"as it was":      {now: []client.Object{of("first")}, goes: true},
		"gone":           {},
		"made once more": {now: []client.Object{of("second")}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.now...).Build()
			r := &reading{app: of("first"), Reader: &Reader{store: appcache.New(cluster, cluster, objectmeta.Scope{}, zerolog.Nop(), time.Now)}}
			news := make(chan struct{}, 1)
			news <- struct{}{}
			again, err := r.relay(t.Context(), nil, nil, nil, news)
			require.NoError(t, err)
			assert.Equal(t, c.goes, again)
		})
	}
}

func TestSkipper_SkipsReadLines(t *testing.T) {
	at := func(n int) podLine { return podLine{line: runnerapi.LogLine{Time: time.Unix(int64(n), 0)}} }
	s := skipper{from: position{at: time.Unix(5, 0), times: 2}}
	var kept []int64
	for _, l := range []podLine{at(4), at(5), at(5), at(5), at(6)} {
		if !s.read(l) {
			kept = append(kept, l.line.Time.Unix())
		}
	}
	assert.Equal(t, []int64{5, 6}, kept, "the third line of that instant is new")
}
