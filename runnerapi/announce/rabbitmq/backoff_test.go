package rabbitmq

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rs/zerolog"
)

// Where nobody listens the pauses stay short; where a broker refuses they grow.
func TestBackoff_ShortWhileDown(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	l, err := NewLink(Config{URLs: []string{"amqp://u:p@" + addr + "/"}, Log: zerolog.Nop()})
	require.NoError(t, err)
	down := l.once(t.Context(), &l.brokers[0], nil)
	require.Equal(t, CodeUnreachable, CodeOf(down), down)
	refused, unwanted := NewBackoff(), NewBackoff()
	for range 10 {
		assert.LessOrEqual(t, nextPause(refused, down), refusedPause)
		nextPause(unwanted, &Error{Op: "log in", Code: CodeBadLogin, Err: errors.New("no")})
	}
	pause := unwanted.NextBackOff()
	assert.True(t, pause >= maxPause/2, "the pause after ten refused logins is %s, want %s", pause, maxPause)
}
