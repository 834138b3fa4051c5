package server

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

// TestPaged_EachItemOnce walks lists of any length, and one that changes between two parts.
func TestPaged_EachItemOnce(t *testing.T) {
	key := func(s string) string { return keyOf("shop", s) }
	for n := range 8 {
		var items, got []string
		for i := range n {
			items = append([]string{"app-" + strconv.Itoa(i)}, items...)
		}
		in := params.Page{Limit: 3}
		for calls := 0; ; calls++ {
			part, page, err := paged(in, items, nil, key)
			require.NoError(t, err)
			require.LessOrEqual(t, calls, n)
			assert.LessOrEqual(t, len(part), 3)
			got = append(got, part...)
			if in.Continue = page.Continue; page.Continue == "" {
				break
			}
		}
		assert.Len(t, got, n)
		assert.IsIncreasing(t, append([]string{""}, got...))
	}

	_, first, err := paged(params.Page{Limit: 1}, []string{"b", "d"}, nil, key)
	require.NoError(t, err)
	rest, end, err := paged(params.Page{Continue: first.Continue}, []string{"a", "c", "d"}, nil, key)
	require.NoError(t, err)
	assert.Equal(t, []string{"c", "d"}, rest)
	assert.Empty(t, end.Continue)
	unordered, _, err := paged(params.Page{}, []string{"b", "a"}, nil, key)
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "a"}, unordered, "without a limit a list is as it was")

	_, _, err = paged(params.Page{Continue: "no token!"}, []string{"a"}, nil, key)
	assert.True(t, problem.Is(err, problem.Invalid))
	_, _, err = paged(params.Page{Limit: 1}, []string(nil), http.ErrServerClosed, key)
	require.ErrorIs(t, err, http.ErrServerClosed)
}

func TestSelected_LabelSelector(t *testing.T) {
	items := []map[string]string{{"env": "prod"}, {"env": "test"}, nil}
	of := func(m map[string]string) map[string]string { return m }
	for selector, want := range map[string]int{"": 3, "env=prod": 1, "env in (prod,test)": 2, "!env": 1, "env!=prod": 2} {
		got, err := selected(selector, items, of)
		require.NoError(t, err)
		assert.Len(t, got, want, selector)
	}
	_, err := selected("env in", items, of)
	assert.True(t, problem.Is(err, problem.Invalid))
}
