package runnerapi

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
	wait "github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestEventsAreReadAsTheyWereWritten(t *testing.T) {
	var b bytes.Buffer
	sent := AppEvent{ID: "1", Type: EventDiagnosis, Name: "web", Status: AppStatus{Diagnosis: &Diagnosis{Message: "two\nlines: a"}}}
	require.NoError(t, writeEvent(&b, string(sent.Type), sent.ID, sent))
	b.WriteString(": a heartbeat\n\n")
	require.NoError(t, writeEvent(&b, errorEvent, "", problem.Errorf(problem.Unavailable, "again", "stopping")))
	var got []AppEvent
	err := readEvents(&b, func(e AppEvent) error { got = append(got, e); return nil })
	known := &Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Unavailable, known.Code)
	assert.Equal(t, []AppEvent{sent}, got)
}

func TestALineWithoutEnd(t *testing.T) {
	err := readEvents(io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat("x", maxEventLine+1))), nil)
	assert.ErrorIs(t, err, errEndless)
}

// slowApps has events that end when their caller is gone.
type slowApps struct {
	Apps
	ended chan error
}

func (s *slowApps) Events(ctx context.Context, _ Key, _ EventOptions, emit func(AppEvent) error) error {
	err := emit(AppEvent{ID: "1", Type: EventPhase})
	for err == nil {
		err = emit(AppEvent{ID: "2", Type: EventProgress})
	}
	s.ended <- err
	return err
}

// gone is a caller that has hung up.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestACallerThatIsGoneEndsTheWork(t *testing.T) {
	apps := &slowApps{ended: make(chan error, 1)}
	s := &server{Config: Config{Apps: apps, Log: zerolog.Nop()}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.streamEvents(ctx, gone{httptest.NewRecorder()}, Key{}, EventOptions{})
	assert.ErrorIs(t, wait.Receive(t, apps.ended, "the end of the events"), context.Canceled)
}

func FuzzReadEvents(f *testing.F) {
	f.Add("id: 1\nevent: phase\ndata: {\"id\":\"1\"}\n\n")
	f.Add("event: error\ndata: {\"status\":503}\n\n")
	f.Add(": hello\n\ndata: x\n\n")
	f.Add("data\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_ = readEvents(strings.NewReader(text), func(AppEvent) error { n++; return nil })
		if n > strings.Count(text, "data") {
			t.Fatalf("%d events out of %q", n, text)
		}
	})
}
