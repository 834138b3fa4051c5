package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// clone is a repository of its own, as a CI has it that has cloned main, with two commits.
func clone(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	runGit(t, "init", "-q", "-b", "main")
	commit(t, "first.txt")
	commit(t, "second.txt")
}

func commit(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(file), 0o600))
	runGit(t, "add", file)
	runGit(t, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", file)
}

func runGit(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestTheChangeOfABranchBeginsAtMain(t *testing.T) {
	clone(t)
	runGit(t, "update-ref", "refs/remotes/origin/main", "HEAD")
	runGit(t, "switch", "-q", "-c", "branch")
	commit(t, "third.txt")
	commit(t, "fourth.txt")
	require.NoError(t, os.WriteFile("fifth.txt", nil, 0o600))
	c, err := findChange(t.Context(), "")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"third.txt", "fourth.txt", "fifth.txt"}, c.files)
	require.Equal(t, c.files, c.last)
	require.Contains(t, c.since, "where this branch left origin/main")
}

func TestOnMainEverythingCountsAsChangedAndTheLastCommitComesFirst(t *testing.T) {
	clone(t)
	for _, origin := range []bool{false, true} {
		if origin {
			runGit(t, "update-ref", "refs/remotes/origin/main", "HEAD")
		}
		c, err := findChange(t.Context(), "")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"first.txt", "second.txt"}, c.files)
		require.Equal(t, []string{"second.txt"}, c.last)
		require.Contains(t, c.since, "this is main")
	}
}

func TestANamedBase(t *testing.T) {
	clone(t)
	c, err := findChange(t.Context(), "HEAD~1")
	require.NoError(t, err)
	require.Equal(t, []string{"second.txt"}, c.files)
	_, err = findChange(t.Context(), "nothing")
	require.ErrorContains(t, err, "BASE=REF")
}

func TestTheNearestPartsComeFirst(t *testing.T) {
	m := repository(t)
	first := func(file string) string { return nearestFirst(m, []string{file})[0].name }
	require.Equal(t, "chaos", first("test/chaos/main.go"))
	require.Equal(t, "hostile", first("test/hostile/growth_test.go"))
	require.Equal(t, "machines", first("test/service/openrc_test.go"))
	require.Equal(t, parts[0].name, first("LICENSE"), "the order of the table")
}
