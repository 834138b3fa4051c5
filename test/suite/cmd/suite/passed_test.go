package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAJobThatSkippedAnUnexpectedTestGetsNoMark(t *testing.T) {
	jobs := []job{{name: "whole"}, {name: "skipped"}, {name: "as expected"}, {name: "empty", args: []string{"-run", "TestNone"}}}
	r := newReport(&bytes.Buffer{}, someKnowledge)
	for i, reason := range []string{"", "not today", "needs root"} {
		e := event{job: &jobs[i], Package: "m/a", Test: "TestRootOnly", Action: "pass"}
		if reason != "" {
			r.take(event{job: &jobs[i], Package: "m/a", Test: "TestRootOnly", Action: "output", Output: "    a_test.go:1: " + reason + "\n"})
			e.Action = "skip"
		}
		r.take(e)
	}
	var all []marked
	for i := range jobs {
		all = append(all, marked{&jobs[i], jobs[i].name})
	}
	require.Equal(t, []string{"whole", "as expected"}, proven(r, all))
}
