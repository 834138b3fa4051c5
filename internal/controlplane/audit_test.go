package controlplane

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// auditChain is a log of that many records, told apart by who is in them.
func auditChain(t *testing.T, runner string, n int) []string {
	t.Helper()
	var lines []string
	prev := ""
	for seq := range n {
		line, err := json.Marshal(runnerapi.AuditRecord{Seq: int64(seq + 1), Prev: prev, Runner: runner, Command: "put-app"})
		require.NoError(t, err)
		prev = runnerapi.AuditHash(line)
		lines = append(lines, string(line))
	}
	return lines
}

// TestAgentAudit_Kept: an agent sends its log, sends it again, with a gap, and then one that does
// not continue it.
func TestAgentAudit_Kept(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	log := auditChain(t, "ci", 10)
	send := func(broken bool, lines ...string) int64 {
		t.Helper()
		answer, err := c.client.Audit(t.Context(), controlapi.AuditRequest{Lines: lines, Broken: broken})
		require.NoError(t, err)
		return answer.Seq
	}
	assert.EqualValues(t, 0, send(false))
	assert.EqualValues(t, 4, send(false, log[:4]...))
	assert.EqualValues(t, 4, send(false, log[:4]...), "what it has is passed over")
	assert.EqualValues(t, 6, send(false, log[2:6]...), "and what is new is taken")
	assert.EqualValues(t, 6, send(false, log[8:]...), "a gap is not")
	kept, err := p.admin.Agents.Audit(t.Context(), "shop", 100)
	require.NoError(t, err)
	require.Len(t, kept, 6)
	for i, l := range kept {
		assert.Equal(t, log[i], l.Line)
		assert.False(t, l.Broken)
	}

	other := auditChain(t, "somebody else", 3)
	assert.EqualValues(t, 6, send(false, other...), "another log is not taken for this one")
	assert.EqualValues(t, 3, send(true, other...), "but noted when the agent has no other")
	kept, err = p.admin.Agents.Audit(t.Context(), "shop", 3)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false, false}, []bool{kept[0].Broken, kept[1].Broken, kept[2].Broken})

	_, err = c.client.Audit(t.Context(), controlapi.AuditRequest{Lines: []string{"nonsense"}})
	requireProblem(t, err, problem.Invalid, "makes no sense", "audit verify")
}

func TestAgentAudit_Bounded(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	other := p.registered("other")
	add := func(id string, from, n int) {
		var lines []store.AuditLine
		for i := range n {
			lines = append(lines, store.AuditLine{Seq: int64(from + i), Hash: fmt.Sprint(from + i), Line: "{}"})
		}
		require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddAudit(t.Context(), id, lines) }))
	}
	add(other.id.AgentID, 1, 2)
	add(c.id.AgentID, 1, store.AuditLength)
	add(c.id.AgentID, store.AuditLength+1, 10)
	kept, err := p.store.Audit(t.Context(), c.id.AgentID, 2*store.AuditLength)
	require.NoError(t, err)
	require.Len(t, kept, store.AuditLength)
	assert.EqualValues(t, 11, kept[0].Seq)
	kept, err = p.store.Audit(t.Context(), other.id.AgentID, 10)
	require.NoError(t, err)
	assert.Len(t, kept, 2, "others' stay")
}
