package mux

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Pings wait in a small buffer. Data that joins them waits in a whole one, behind them.
func TestBatch_SmallBufferAtRest(t *testing.T) {
	b := newBatch(nil, nil, time.Second, func(error) {})
	b.busy = true // somebody sends: what comes waits
	ping := header{kind: framePing, length: 7}
	assert.True(t, b.put(ping, true))
	assert.True(t, b.put(ping, true))
	assert.Equal(t, littleSize, cap(b.waiting))

	body := bytes.Repeat([]byte("x"), 4000)
	n, err := b.data(1, body)
	require.NoError(t, err)
	assert.Equal(t, len(body), n)
	assert.GreaterOrEqual(t, cap(b.waiting), batchSize)
	want := append(ping.append(ping.append(nil)), header{kind: frameData, stream: 1, length: 4000}.append(nil)...)
	assert.Equal(t, append(want, body...), b.waiting)
	assert.True(t, b.put(ping, true))
	assert.GreaterOrEqual(t, cap(b.waiting), batchSize, "a whole one does not become little")
}
