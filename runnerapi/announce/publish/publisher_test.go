package publish

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestPublish_EndsWithContext(t *testing.T) {
	p, err := New(rabbitmq.Config{URLs: []string{"amqps://u:" + "geheim" + "@127.0.0.1:1/"}})
	require.NoError(t, err)
	run, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(run) }()
	await.Until(t, "the broker is known to be out of reach", func() bool { return rabbitmq.CodeOf(p.Status().Err) == rabbitmq.CodeUnreachable })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	event, err := announce.NewAgentEvent(announce.AgentOnline, "/controlplane", announce.Agent{ID: "a1", Name: "a1", State: announce.StateOnline}, 1, time.Now())
	require.NoError(t, err)
	encoded, err := event.Encoded()
	require.NoError(t, err)
	confirmed, err := p.Publish(ctx, []announce.Encoded{encoded})
	if confirmed != 0 || rabbitmq.CodeOf(err) != rabbitmq.CodeUnreachable || strings.Contains(err.Error(), "geheim") {
		t.Errorf("Publish = %d, %v", confirmed, err)
	}
	stop()
	_ = await.Receive(t, ended, "the end of Run")
}
