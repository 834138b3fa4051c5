package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	wait "github.com/pipeops/pipeops-vm-agent/test/await"
)

// slowApps has events that end when their caller is gone.
type slowApps struct {
	backend.Apps
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

func TestEvents_EndWithCaller(t *testing.T) {
	apps := &slowApps{ended: make(chan error, 1)}
	s := &eventCalls{&appWork{calls: &calls{log: zerolog.Nop()}, apps: apps}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s.streamEvents(ctx, gone{httptest.NewRecorder()}, runnerapi.Key{}, runnerapi.EventOptions{})
	assert.ErrorIs(t, wait.Receive(t, apps.ended, "the end of the events"), context.Canceled)
}
