package wire

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestReadEvents_RoundTrip(t *testing.T) {
	var b bytes.Buffer
	sent := runnerapi.AppEvent{ID: "1", Type: runnerapi.EventDiagnosis, Name: "web", Status: runnerapi.AppStatus{Diagnosis: &runnerapi.Diagnosis{Message: "two\nlines: a"}}}
	require.NoError(t, WriteEvent(&b, string(sent.Type), sent.ID, sent))
	b.WriteString(": a heartbeat\n\n")
	require.NoError(t, WriteEvent(&b, ErrorEvent, "", problem.Errorf(problem.Unavailable, "again", "stopping")))
	var got []runnerapi.AppEvent
	err := ReadEvents(&b, func(e runnerapi.AppEvent) error { got = append(got, e); return nil })
	known := &runnerapi.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Unavailable, known.Code)
	assert.Equal(t, []runnerapi.AppEvent{sent}, got)
}

func TestReadEvents_LimitsLine(t *testing.T) {
	err := ReadEvents(io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat("x", maxEventLine+1))), nil)
	assert.ErrorIs(t, err, errEndless)
}

func FuzzReadEvents(f *testing.F) {
	f.Add("id: 1\nevent: phase\ndata: {\"id\":\"1\"}\n\n")
	f.Add("event: error\ndata: {\"status\":503}\n\n")
	f.Add(": hello\n\ndata: x\n\n")
	f.Add("data\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_ = ReadEvents(strings.NewReader(text), func(runnerapi.AppEvent) error { n++; return nil })
		require.LessOrEqual(t, n, strings.Count(text, "data"), "%d events out of %q", n, text)
	})
}
