package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"

	wait "github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestEventsAreReadAsTheyWereWritten(t *testing.T) {
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

func TestALineWithoutEnd(t *testing.T) {
	err := ReadEvents(io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat("x", maxEventLine+1))), nil)
	assert.ErrorIs(t, err, errEndless)
}

// slowApps has events that end when their caller is gone.
type slowApps struct {
	server.Apps
	ended chan error
}

func (s *slowApps) Events(ctx context.Context, _ runnerapi.Key, _ runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error {
	err := emit(runnerapi.AppEvent{ID: "1", Type: runnerapi.EventPhase})
	for err == nil {
		err = emit(runnerapi.AppEvent{ID: "2", Type: runnerapi.EventProgress})
	}
	s.ended <- err
	return err
}

// gone is a caller that has hung up.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestACallerThatIsGoneEndsTheWork(t *testing.T) {
	apps := &slowApps{ended: make(chan error, 1)}
	s := &server.Server{Config: server.Config{Apps: apps, Log: zerolog.Nop()}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.StreamEvents(ctx, gone{httptest.NewRecorder()}, runnerapi.Key{}, runnerapi.EventOptions{})
	assert.ErrorIs(t, wait.Receive(t, apps.ended, "the end of the events"), context.Canceled)
}

func FuzzReadEvents(f *testing.F) {
	f.Add("id: 1\nevent: phase\ndata: {\"id\":\"1\"}\n\n")
	f.Add("event: error\ndata: {\"status\":503}\n\n")
	f.Add(": hello\n\ndata: x\n\n")
	f.Add("data\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_ = ReadEvents(strings.NewReader(text), func(runnerapi.AppEvent) error { n++; return nil })
		if n > strings.Count(text, "data") {
			t.Fatalf("%d events out of %q", n, text)
		}
	})
}
