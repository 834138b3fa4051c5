package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../../.."

func TestParts_RunWhatTestLeavesOut(t *testing.T) {
	t.Chdir(root)
	m, err := loadModule(t.Context())
	require.NoError(t, err)
	all := partJobs(m, parts)
	for _, j := range all {
		require.NotEmpty(t, j.Packages, "part %s: %v", j.Part, j.First)
	}
	for _, pkg := range m.tested {
		for _, name := range longTests(pkg) {
			require.True(t, slices.ContainsFunc(all, func(j job) bool {
				return slices.Contains(j.Packages, pkg) && slices.Contains(j.Env, release[0]) &&
					(!j.selects() || strings.Contains(strings.Join(j.First, " "), name))
			}), "%s %s is in no part", pkg, name)
		}
	}
}
