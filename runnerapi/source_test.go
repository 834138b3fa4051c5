package runnerapi_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestSourceStatus_History(t *testing.T) {
	s := runnerapi.SourceStatus{}
	assert.Empty(t, s.Earlier())
	apply := func(commits ...string) {
		for _, c := range commits {
			s.History, s.Commit = s.WithApplied(runnerapi.SourceCommit{Commit: c}), c
		}
	}
	apply("a1")
	assert.Empty(t, s.Earlier())
	apply("b1", "b1", "c1")
	assert.Len(t, s.History, 3, "the same again is no new entry")
	assert.Equal(t, "b1", s.Earlier())
	apply("b1")
	assert.Equal(t, "a1", s.Earlier(), "and not c1, from which it went back")
	apply("a1")
	assert.Empty(t, s.Earlier())
	apply("d1")
	assert.Equal(t, "a1", s.Earlier())

	for digits, want := range map[string]string{"b": "b1", "b1": "b1", "c": "c1", "e": "", "b12": ""} {
		assert.Equal(t, want, s.Applied(digits), digits)
	}
	apply("b2")
	assert.Empty(t, s.Applied("b"), "they stand for two")
	for i := range 20 {
		apply(fmt.Sprintf("e%d", i))
	}
	assert.Len(t, s.History, 10)
	assert.Equal(t, "e18", s.Earlier())
}
