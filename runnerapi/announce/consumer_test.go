package announce

import (
	"testing"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

func TestConsumer_NeedsQueue(t *testing.T) {
	if _, err := NewConsumer(ConsumerConfig{Config: rabbitmq.Config{URLs: []string{"amqps://h/"}}}); err == nil {
		t.Error("a queue without a name is fine")
	}
}
