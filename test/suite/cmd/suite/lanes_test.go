package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPartsTakeAsLongAsTheLongestLaneAndThoseAlone(t *testing.T) {
	p := func(l lane, minutes int) piece {
		return piece{part: part{lane: l}, cost: time.Duration(minutes) * time.Minute}
	}
	require.Equal(t, 27*time.Minute, duration([]piece{
		p(machinesLane, 5), p(machinesLane, 7), p(serversLane, 9), p(idleLane, 10), p(aloneLane, 15),
	}))
}

// TestLanes runs parts of one test each, of a module of their own.
func TestLanes(t *testing.T) {
	repository(t) // its files tell which skips are expected
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a
import ("os"; "testing")
func note(s string) { f, _ := os.OpenFile("ran", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); f.WriteString(s + "\n"); f.Close() }
func TestMachines(*testing.T) { note("machines") }
func TestIdle(*testing.T) { note("idle") }
func TestAlone(*testing.T) { note("alone") }
func TestFails(t *testing.T) { note("fails"); t.Fatal() }
`), 0o600))
	one := func(name, test string, l lane) piece {
		j := job{name: name, part: name, dir: dir, nice: map[bool]int{true: 19}[l == idleLane], args: []string{"-run", "^" + test + "$"}, packages: []string{"."}}
		return piece{part: part{name: name, lane: l}, jobs: []marked{{&j, filepath.Join(dir, "passed", name)}}}
	}
	var out strings.Builder
	err := runPieces(t.Context(), &out, []piece{
		one("chaos", "TestAlone", aloneLane), one("machines", "TestMachines", machinesLane), one("fuzz", "TestIdle", idleLane),
		one("broken", "TestFails", machinesLane), one("empty", "TestGone", serversLane),
	})
	require.Error(t, err)
	ran, err := os.ReadFile(filepath.Join(dir, "ran"))
	require.NoError(t, err)
	order := strings.Fields(string(ran))
	require.ElementsMatch(t, []string{"machines", "idle", "fails", "alone"}, order)
	require.Equal(t, "alone", order[3], "it begins when the others have ended")
	for name, is := range map[string]bool{"chaos": true, "machines": true, "fuzz": true, "broken": false, "empty": false} {
		_, err := os.Stat(filepath.Join(dir, "passed", name))
		require.Equal(t, is, err == nil, name)
	}
	require.Contains(t, out.String(), "== part machines passed in")
	require.Contains(t, out.String(), "== part broken FAILED after")
	require.Contains(t, out.String(), "ok    [chaos] m")
	require.Contains(t, out.String(), "FAIL  [empty] empty: its pattern matches no test")
}
