package announce

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// The directory receives all events, or stands by, or loses the broker.
func TestDirectory_RefreshInterval(t *testing.T) {
	for name, c := range map[string]struct {
		begin, meanwhile func(*rabbitmq.Link)
		want             time.Duration
	}{
		"hears all":        {func(*rabbitmq.Link) {}, func(*rabbitmq.Link) {}, refreshEvery},
		"stands by":        {func(l *rabbitmq.Link) { l.Standby(true) }, func(*rabbitmq.Link) {}, refreshAlone},
		"its turn comes":   {func(l *rabbitmq.Link) { l.Standby(true) }, func(l *rabbitmq.Link) { l.Standby(false) }, refreshEvery},
		"loses the broker": {func(*rabbitmq.Link) {}, func(l *rabbitmq.Link) { l.Disconnected(errors.New("gone")) }, refreshAlone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := NewDirectory(DirectoryConfig{Snapshot: new(registry).snapshot, Events: &ConsumerConfig{
					Config: rabbitmq.Config{URLs: []string{"amqps://127.0.0.1/"}, Log: zerolog.Nop()}, Queue: rabbitmq.RunnerQueue("r"),
				}})
				require.NoError(t, err)
				d.consumer.link.Connected("127.0.0.1:5671")
				c.begin(d.consumer.link)
				soon := time.AfterFunc(time.Second, func() { c.meanwhile(d.consumer.link) })
				defer soon.Stop()
				began := time.Now()
				d.idle(t.Context())
				assert.Equal(t, c.want, time.Since(began))
			})
		})
	}
}
