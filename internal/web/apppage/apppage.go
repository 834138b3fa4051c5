// Package apppage has the data of the pages about one App, which are the same on each site. Their
// templates are the kit's. What a site cannot know or do, it leaves empty.
package apppage

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/crontime"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Data is what the page of an App shows.
type Data struct {
	runnerapi.App
	Up             web.Link // the page above
	Log, LogBefore string   // paths of the log, and of that of the run before the last restart
	Actions        []web.Link
	// Rollback leads to the question before a rollback. Its path ends where the revision's number
	// begins.
	Rollback  web.Link
	Runner    string // as which the operator acts; empty for the owner
	Unread    []*problem.Error
	Revisions []runnerapi.Revision
	Visitors  *Visitors // nil for an App without a public host
	Source    *Source   // nil for an App that comes from no repository
	Inside    *Inside   // nil for a site that does not read the cluster
}

// NextRun returns when a CronJob runs next; the zero time if it does not.
func (d Data) NextRun() time.Time { return crontime.Next(d.Spec, time.Now()) }

// Inside is what only a site knows that reads the App's cluster.
type Inside struct {
	Usage    Usage
	Pods     []Pod
	MorePods int                      // older ones that are not shown
	Warnings []runnerapi.ClusterEvent // of the pods, the newest first
	Lines    []runnerapi.LogLine
}

// Pod is a row of the table of pods.
type Pod struct {
	Name, Node, State string
	Restarts          int32
	Created           time.Time
}

// Usage is an App's CPU and memory over time.
type Usage struct {
	Spans   []Span // to choose from
	Span    string // the name of the chosen one
	Charts  []web.Chart
	Sampled bool // the site itself has recorded it, for an hour at most
	Missing bool // nothing in the cluster measures usage
	Problem *problem.Error
}

// Span is a time that usage covers.
type Span struct{ Name, Text string }

// Add adds what can be done with the App. The function returns the link to a change, by its name in
// the address.
func (d *Data) Add(link func(name, text string) web.Link) {
	stopped := d.Spec.Type.Scales() && d.Spec.Replicas != nil && *d.Spec.Replicas == 0
	for _, can := range []struct {
		name, text string
		now        bool
	}{
		{"start", "Start", stopped},
		{"restart", "Restart", d.Spec.Type != runnerapi.TypeCronJob && !stopped},
		{"scale", "Scale", d.Spec.Type.Scales() && !stopped},
		{"stop", "Stop", d.Spec.Type.Scales() && !stopped},
		{"pause", "Pause", !d.Spec.IsPaused()},
		{"resume", "Resume", d.Spec.IsPaused()},
		{"delete", "Delete", true},
	} {
		if can.now && d.Status.Phase != runnerapi.PhaseDeleting {
			d.Actions = append(d.Actions, link(can.name, can.text))
		}
	}
}

// What is said before a change of an App, on each site.
const (
	RestartText = "All pods are replaced, a few at a time. A Job runs again."
	StartText   = "The App runs again, with this number of pods."
	StopText    = "All pods end, and autoscaling is turned off. Routes, revisions and volumes stay."
	PauseText   = "Nothing is rolled out until the App is resumed. Its pods run on."
	ResumeText  = "What was changed during the pause is rolled out."
	DeleteText  = "The App, its pods, routes and revisions are deleted. Persistent volume claims stay."
)
