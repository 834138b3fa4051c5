package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStream_SendsChanges renders four times and sends twice.
func TestStream_SendsChanges(t *testing.T) {
	w := httptest.NewRecorder()
	stream, done, err := NewStreams(1).Open(w, request(t))
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
		_, done, err := s.Open(httptest.NewRecorder(), request(t))
		require.NoError(t, err)
		end = done
	}
	_, _, err := s.Open(httptest.NewRecorder(), request(t))
	require.Error(t, err)
	end()
	_, _, err = s.Open(httptest.NewRecorder(), request(t))
	require.NoError(t, err)
}

func request(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/live/", http.NoBody)
}

// TestStream_EndsWithSession: a browser that has signed out in another tab gets nothing more.
func TestStream_EndsWithSession(t *testing.T) {
	s := newSite(t)
	with, token := s.signIn(t)
	streams, sent := NewStreams(1), []string{"one", "two"}
	s.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream, done, err := streams.Open(w, r)
		require.NoError(t, err)
		defer done()
		changes := make(chan struct{}, 1)
		changes <- struct{}{}
		require.ErrorIs(t, stream.Follow(r.Context(), changes, func() ([]byte, error) {
			text := sent[0]
			if sent = sent[1:]; len(sent) == 0 {
				s.do(http.MethodPost, LeavePath, url.Values{"csrf": {token}}, with)
			}
			return []byte(text), nil
		}), errSignedOut)
	})
	assert.Equal(t, "data: one\n\n", s.do(http.MethodGet, "/live", nil, with).Body.String())
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/live", nil, with, header("Sec-Fetch-Dest", "empty")).Code, "the browser connects again")
}
