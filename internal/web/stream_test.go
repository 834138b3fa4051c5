package web

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStream_SendsChanges renders four times and sends twice.
func TestStream_SendsChanges(t *testing.T) {
	w := httptest.NewRecorder()
	stream, done, err := NewStreams(1).Open(w)
	require.NoError(t, err)
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := make(chan struct{}, 3)
	for range 3 {
		changes <- struct{}{}
	}
	texts := []string{"one\ntwo\r\n", "one\ntwo\r\n", "three", "three"}
	require.NoError(t, stream.Follow(ctx, changes, func() ([]byte, error) {
		text := texts[0]
		if texts = texts[1:]; len(texts) == 0 {
			cancel()
		}
		return []byte(text), nil
	}))
	assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	assert.Equal(t, "data: one\ndata: two\ndata: \n\ndata: three\n\n", w.Body.String())
	gone := errors.New("gone")
	require.ErrorIs(t, stream.Follow(t.Context(), changes, func() ([]byte, error) { return nil, gone }), gone)
}

func TestStream_Bounded(t *testing.T) {
	const most = 3
	s := NewStreams(most)
	var end func()
	for range most {
		_, done, err := s.Open(httptest.NewRecorder())
		require.NoError(t, err)
		end = done
	}
	_, _, err := s.Open(httptest.NewRecorder())
	require.Error(t, err)
	end()
	_, _, err = s.Open(httptest.NewRecorder())
	require.NoError(t, err)
}
