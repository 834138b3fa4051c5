package store_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestSQLite_WritersDoNotBlockReaders(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	began, end := make(chan struct{}), make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(end)
	writers.Go(func() {
		assert.NoError(t, s.Update(t.Context(), func(*store.Tx) error { close(began); <-end; return nil }))
	})
	await.Closed(t, began, "the first writer")
	for range 100 { // many more than there are connections
		writers.Go(func() { assert.NoError(t, s.Update(t.Context(), func(*store.Tx) error { return nil })) })
	}
	reading, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 200 { // while they all come to wait
		require.NoError(t, s.Ping(reading))
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	assert.ErrorIs(t, s.Update(waiting, func(*store.Tx) error { return nil }), context.Canceled, "who has no time is told so")
}
