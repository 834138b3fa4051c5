package broker

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// Channel returns a user's channel, on a connection that ends with the test.
func Channel(t testing.TB, b Endpoint, user string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.DialTLS(b.URL(user), b.TLSConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) })
	ch, err := conn.Channel()
	require.NoError(t, err)
	return ch
}

// PublishAsRunner sends a message as any Runner may, and waits for the broker's answer.
func PublishAsRunner(t testing.TB, b Endpoint, exchange, key string, message amqp.Publishing) {
	t.Helper()
	ch := Channel(t, b, UserRunner)
	require.NoError(t, ch.Confirm(false))
	c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, message)
	require.NoError(t, err)
	require.True(t, c.Wait(), "the broker did not take it")
}
