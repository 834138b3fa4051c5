package agents

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestDuplicateInstances(t *testing.T) {
	type beat struct{ process, ticket string }
	for name, c := range map[string]struct {
		beats     []beat // a ticket of N is that of the Nth answer
		duplicate bool
	}{
		"one process":                       {beats: []beat{{"a", ""}, {"a", "0"}, {"a", "1"}, {"a", "2"}}},
		"it restarts, and again":            {beats: []beat{{"a", ""}, {"a", "0"}, {"b", ""}, {"b", "2"}, {"c", ""}, {"c", "4"}}},
		"a call comes after its end":        {beats: []beat{{"a", ""}, {"b", ""}, {"a", "0"}, {"b", "1"}}},
		"an answer is lost":                 {beats: []beat{{"a", ""}, {"a", "0"}, {"a", "0"}, {"a", "2"}, {"a", "2"}, {"a", "2"}, {"a", "5"}}},
		"two processes":                     {beats: []beat{{"a", ""}, {"b", ""}, {"a", "0"}, {"b", "1"}, {"a", "2"}}, duplicate: true},
		"a memory that was doubled":         {beats: []beat{{"a", ""}, {"a", "0"}, {"a", "0"}, {"a", "1"}, {"a", "2"}, {"a", "3"}}, duplicate: true},
		"the control plane restarts":        {beats: []beat{{"a", "unknown"}, {"a", "0"}, {"a", "1"}}},
		"two, one of them seldom":           {beats: []beat{{"a", ""}, {"a", "0"}, {"b", ""}, {"a", "1"}, {"a", "3"}, {"b", "2"}, {"a", "4"}}, duplicate: true},
		"control planes with a memory each": {beats: []beat{{"a", ""}, {"a", "theirs"}, {"a", "1"}, {"a", "theirs too"}}},
	} {
		t.Run(name, func(t *testing.T) {
			duplicates := newDuplicates(time.Now)
			var answered []string
			found := false
			for _, b := range c.beats {
				ticket := b.ticket
				if len(ticket) == 1 {
					ticket = answered[ticket[0]-'0']
				}
				next, duplicate := duplicates.beat("agent", controlapi.Heartbeat{Instance: "node-1", Process: b.process, Ticket: ticket})
				answered = append(answered, next)
				found = found || duplicate
			}
			assert.Equal(t, c.duplicate, found)
		})
	}
}

func TestDuplicateInstances_IgnoresReplicas(t *testing.T) {
	duplicates := newDuplicates(time.Now)
	tickets := map[string]string{}
	for range 10 {
		for _, replica := range []string{"pod-1", "pod-2", "pod-3"} {
			next, duplicate := duplicates.beat("agent", controlapi.Heartbeat{Instance: replica, Process: "process of " + replica, Ticket: tickets[replica]})
			assert.False(t, duplicate)
			tickets[replica] = next
		}
	}
}

func TestDuplicateInstances_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		duplicates := newDuplicates(time.Now)
		for i := range 1000 {
			duplicates.beat("agent", controlapi.Heartbeat{Instance: string(rune('a' + i)), Process: "p"})
			duplicates.beat("agent", controlapi.Heartbeat{Instance: "a", Process: string(rune('a' + i))})
		}
		lines := duplicates.agents["agent"]
		assert.LessOrEqual(t, len(lines), instancesKept+1)
		for _, l := range lines {
			assert.LessOrEqual(t, len(l.gone), duplicatesKept+1)
		}
		time.Sleep(2 * duplicateMemory)
		duplicates.forget(time.Now())
		assert.Empty(t, duplicates.agents)
	})
}

func TestDuplicateInstances_KeptClones(t *testing.T) {
	now := time.Now()
	var list []announce.Clone
	for i := range 20 {
		var isNew bool
		list, isNew = withClone(list, announce.Clone{ClusterUID: string(rune('a' + i))}, now)
		assert.True(t, isNew)
	}
	assert.Len(t, list, clonesKept)
	again, isNew := withClone(list, list[3], now.Add(time.Hour))
	assert.False(t, isNew)
	assert.Equal(t, now, again[3].FirstSeen)
	assert.Equal(t, now.Add(time.Hour), again[3].LastSeen)
	again, isNew = withClone(list, list[3], now.Add(2*cloneLife))
	assert.True(t, isNew, "after such a time it is news")
	assert.Len(t, again, 1)
}
