package failures

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMain(m *testing.M) {
	render.Child()
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

// atATime is how many failures happen at a time, each to an App, a set and a release: a node of two
// cores starts as many pods in some seconds.
const atATime = 8

// TestFailures has each failure befall an App, a set of manifests and a release: the same is said
// of the three, and none of them is called healthy.
func TestFailures(t *testing.T) {
	suite.Release(t, "each failure of the table, as an App, a set and a release")
	env := kubetest.Full(t)
	Classes(t, env)
	all := delays{}
	for i, batch := range batches(Table(LoadImages(t, env))) {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) { befall(t, env, batch, all) })
	}
	all.check(t)
}

// soon is the delay after its signal in which a failure is to be reported.
const soon = 2 * time.Second

// delays are how long after their signals failures were reported, by what they befell.
type delays map[string][]time.Duration

// check requires that failures are usually reported soon. The longest delays depend on the machine,
// so they are only logged.
func (d delays) check(t *testing.T) {
	t.Helper()
	for _, kind := range kinds {
		all := slices.Sorted(slices.Values(d[kind]))
		if len(all) == 0 {
			continue
		}
		at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(time.Millisecond) }
		t.Logf("%s: %d failures reported; half within %s, nine of ten within %s, all within %s", kind, len(all), at(50), at(90), at(100))
		assert.LessOrEqual(t, at(50), soon, "half of the failures: %s", kind)
	}
}

// befall runs one batch, and deletes the objects that it has made.
func befall(t *testing.T, env *kubetest.Env, batch []Failure, all delays) {
	t.Helper()
	b := newBench(t, env, batch)
	for _, f := range batch {
		b.begin(t, f)
	}
	for _, f := range batch {
		t.Run(f.Name, func(t *testing.T) {
			for _, kind := range kinds {
				if kind == anApp && f.NoApp != "" {
					t.Logf("there is no App of it: %s", f.NoApp)
					continue
				}
				t.Run(kind, func(t *testing.T) {
					o := b.outcome(t, f, kind)
					o.check(t, f, kind)
					if f.Signal != nil && !f.Refused {
						all[kind] = append(all[kind], b.seen[kind].Delay(t, f.Name))
					}
				})
			}
		})
	}
}

// check holds what became of a failure against what has to be said of it.
func (o outcome) check(t *testing.T, f Failure, kind string) {
	t.Helper()
	if !f.Later {
		assert.False(t, o.healthy, "it was called healthy")
	}
	if f.Refused && kind != anApp {
		require.Error(t, o.err)
		t.Log(o.err)
		assert.Contains(t, o.err.Error(), f.Message)
		assert.Contains(t, o.err.Error(), f.Fix)
		return
	}
	require.NoError(t, o.err)
	f.Check(t, o.diagnosis)
	if kind == anApp && !f.Lives {
		assert.Equal(t, runnerapi.PhaseFailed, o.phase)
	}
	if kind != anApp {
		assert.NotRegexp(t, `\b(the|an|this) App\b`, o.diagnosis.Message+o.diagnosis.Fix, "there is none")
	}
}

// deal spreads failures over batches. Neighbours in the table are alike: programs that crash again
// and again, at the same time, would leave the node time for nothing else.
func deal(all []Failure) [][]Failure {
	out := make([][]Failure, (len(all)+atATime-1)/atATime)
	for i, f := range all {
		out[i%len(out)] = append(out[i%len(out)], f)
	}
	return out
}

// batches are failures that go on at the same time: those that take their time together, what the
// node is needed for alone.
func batches(all []Failure) (out [][]Failure) {
	if only := os.Getenv("PIPEOPS_TEST_FAILURES"); only != "" { // NAME,NAME: while a test is written
		names := strings.Split(only, ",")
		all = slices.DeleteFunc(all, func(f Failure) bool { return !slices.Contains(names, f.Name) })
	}
	var slow, alone, rest []Failure
	for _, f := range all {
		switch {
		case f.Scene != nil && f.Scene.Alone:
			alone = append(alone, f)
		case f.Slow:
			slow = append(slow, f)
		default:
			rest = append(rest, f)
		}
	}
	out = append(out, deal(rest)...)
	if len(slow) > 0 {
		out = append(out, slow)
	}
	for _, f := range alone {
		out = append(out, []Failure{f})
	}
	return out
}
