package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOnlyTheExpectedProblemsAreAFind: the accountant's check of itself takes no problem for
// another one.
func TestOnlyTheExpectedProblemsAreAFind(t *testing.T) {
	lost, twice := "Secret a: the cluster has nothing; commanded was value 1", "the audit log tells of 2 operations"
	require.NoError(t, same(nil, nil))
	require.NoError(t, same([]string{twice, lost}, []string{"Secret a: the cluster has nothing", "of 2 operations"}))
	for name, c := range map[string]struct{ problems, expected []string }{
		"nothing was found":        {nil, []string{"Secret a"}},
		"another one was found":    {[]string{twice}, []string{"Secret a"}},
		"one more was found":       {[]string{lost, twice}, []string{"Secret a"}},
		"one was found for two":    {[]string{lost}, []string{"Secret a", "the cluster has nothing"}},
		"something is not damaged": {[]string{lost}, nil},
	} {
		assert.Error(t, same(c.problems, c.expected), name)
	}
}
