// Package apppage has the data of the pages about one App, which are the same on each site. Their
// templates are the kit's. What a site cannot know or do, it leaves empty.
package apppage

import (
	"time"

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
	Inside    *Inside // nil for a site that does not read the cluster
}

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

// Restarts reports whether a restart makes sense.
func (d Data) Restarts() bool { return d.Spec.Type != runnerapi.TypeCronJob && !d.deleting() }

// Scales reports whether the number of pods can be set.
func (d Data) Scales() bool { return d.Spec.Type.Scales() && !d.deleting() }

func (d Data) deleting() bool { return d.Status.Phase == runnerapi.PhaseDeleting }
