// Package failures is a table of workload failures on a real cluster, with the expected diagnosis
// of each: the cause, the object, the fix. Its test causes each of them for an App, a set of
// manifests and a Helm release; the Engine's own tests use some of them.
package failures

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Failure is one way for a workload to fail, with its expected diagnosis.
type Failure struct {
	Name string
	// Spec is of the App that fails. A set and a release are made of the objects that it becomes.
	Spec runnerapi.AppSpec
	// Change causes the failure if no spec can: in the objects of the set and of the release. NoApp
	// says what an App lacks for it.
	Change func(Objects)
	NoApp  string
	Scene  *Scene // what the cluster is like; nil for nothing special

	// Signal is what the cluster shows of it first; nil where nothing does but time.
	Signal  Signal
	Cause   runnerapi.Cause
	Object  string // the beginning of the object's name, as in pod/
	Message string // a part of it
	Fix     string // a part of it

	Lives   bool // it serves now and then, as far as a late kubelet can report
	Later   bool // it does well at first
	Refused bool // the cluster takes no object of it: applying it fails
	Slow    bool // it takes a minute or more until there is a signal
}

// Matches reports whether a diagnosis is the expected one.
func (f Failure) Matches(d *runnerapi.Diagnosis) bool {
	return d != nil && d.Cause == f.Cause && strings.Contains(d.Message, f.Message)
}

// Check compares a diagnosis with the expected one.
func (f Failure) Check(t *testing.T, d *runnerapi.Diagnosis) {
	t.Helper()
	require.NotNil(t, d, "nothing is said to be wrong")
	t.Logf("%s (%s): %s; fix: %s", d.Cause, d.Object, d.Message, d.Fix)
	assert.Equal(t, f.Cause, d.Cause)
	assert.Contains(t, d.Message, f.Message)
	assert.Contains(t, d.Fix, f.Fix)
	assert.NotEmpty(t, d.Fix)
	assert.NotEmpty(t, d.Object)
	assert.True(t, strings.HasPrefix(d.Object, f.Object), "%s is not %s…", d.Object, f.Object)
	if strings.HasPrefix(f.Message, "exit code") {
		require.NotNil(t, d.ExitCode)
		assert.NotZero(t, *d.ExitCode)
		assert.Contains(t, strings.Join(d.LastLines, "\n"), "crashing on purpose")
	}
}

// Table returns all failures. Their names differ.
func Table(images Images) []Failure {
	var all []Failure
	for _, part := range []func(Images) []Failure{
		ofImages, ofConfiguration, ofCommands, ofCrashes, ofContainers, ofScheduling, ofVolumes, ofProbes, ofRuns,
		ofRefusals, ofAdmission, ofNodes, ofTime,
	} {
		all = append(all, part(images)...)
	}
	return all
}

// Named returns the failures of these names, in their order.
func Named(t *testing.T, images Images, names ...string) []Failure {
	t.Helper()
	byName := map[string]Failure{}
	for _, f := range Table(images) {
		byName[f.Name] = f
	}
	some := make([]Failure, 0, len(names))
	for _, name := range names {
		f, known := byName[name]
		require.True(t, known, "there is no failure %q in the table", name)
		some = append(some, f)
	}
	return some
}
