package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestRefusals_AreAggregated(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	var records []runnerapi.AuditRecord
	r := newRefusals(func(a runnerapi.AuditRecord) { records = append(records, a) }, func() time.Time { return now }, zerolog.Nop())
	stranger := transport.Refusal{Code: transport.RefusedUnknown, Message: "who are you", Certificate: "7"}
	for range 10_000 {
		r.note(stranger)
	}
	require.Len(t, records, 1, "the first is reported immediately, the rest is counted")
	assert.Equal(t, runnerapi.AuditRecord{
		Time: now, Certificate: "7", Command: runnerapi.AuditConnect, Outcome: runnerapi.AuditRefused, Code: transport.RefusedUnknown, Message: "who are you",
	}, records[0])
	r.note(transport.Refusal{Code: transport.RefusedRevoked, Runner: "ci"})
	require.Len(t, records, 2, "another kind is reported immediately, too")

	now = now.Add(refusalPause)
	r.flushAll(refusalPause)
	require.Len(t, records, 3)
	assert.Contains(t, records[2].Message, "9998 more like it")
	now = now.Add(refusalPause)
	r.flushAll(refusalPause)
	assert.Len(t, records, 3)
	assert.Empty(t, r.kinds, "what has become rare is forgotten")

	for i := range 10_000 { // whoever has a CA's certificates without end
		r.note(transport.Refusal{Code: transport.RefusedRevoked, Runner: fmt.Sprint("r", i)})
	}
	assert.Len(t, records, 3+refusalKinds+1)
	assert.LessOrEqual(t, len(r.kinds), refusalKinds+1)
}

func TestNews_Current(t *testing.T) {
	n := newNews()
	soon := func() error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("now"))
		return n.current(ctx)
	}
	require.Error(t, soon(), "nothing was heard yet")
	n.tell(n.ask(), []string{"1"}, map[string]string{"a": "b"})
	require.NoError(t, soon())
	assert.True(t, n.isRevoked("1"))
	assert.Equal(t, "b", n.own()["a"])

	asked := n.ask()
	n.expire()
	n.tell(asked, nil, nil)
	require.Error(t, soon(), "that was asked before")
	waiting := make(chan error, 1)
	go func() { waiting <- n.current(t.Context()) }()
	n.tell(n.ask(), nil, nil)
	require.NoError(t, await.Receive(t, waiting, "the news"))
	assert.False(t, n.isRevoked("1"))
}
