// Package params has the parts from which the inputs of the Runner API's calls are made. They are
// exported because huma looks at nothing else, and in a separate package because no other
// package needs them.
package params

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// App is the path of an App.
type App struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Namespace that the agent manages." example:"production"`
	Name      string `path:"name" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the App." example:"web"`
}

// Namespace is the path of a namespace.
type Namespace struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the namespace." example:"production"`
}

// Page selects a part of a list.
type Page struct {
	Limit    int    `query:"limit" minimum:"0" maximum:"1000" doc:"How many objects to return at most, ordered by namespace and name; all when absent or 0."`
	Continue string `query:"continue" maxLength:"4096" pattern:"^[A-Za-z0-9_-]*$" doc:"Token of the part before."`
}

// Object is the path of any other namespaced object.
type Object struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Namespace that the agent manages." example:"production"`
	Name      string `path:"name" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Name of the object." example:"web-env"`
}

// Write is what every write takes.
type Write struct {
	DryRun         bool   `query:"dryRun" doc:"Check everything that the cluster checks and change nothing."`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"The caller's name for this very command: sent again with the same key it is carried out once."`
}

// Deploy is what a deploy takes beside what every write takes.
type Deploy struct {
	Adopt   bool   `query:"adopt" doc:"Take over the workload, Service, Ingress and others of the App's name that were made otherwise, where nothing else looks after them. The customer's policy has to name adopt-app."`
	IfMatch string `header:"If-Match" maxLength:"20" pattern:"^\"[1-9][0-9]{0,17}\"$" doc:"The App's generation from which the spec was made, in quotes: with another one the spec is refused with 412, so that nobody's change is lost (RFC 9110, section 13.1.1)." example:"\"7\""`
}

// Generation returns the generation in If-Match; 0 if there is none.
func (d Deploy) Generation() int64 {
	n, _ := strconv.ParseInt(strings.Trim(d.IfMatch, `"`), 10, 64) // the pattern has checked it
	return n
}

// DeployRelease is what a deploy of a Helm release takes beside what every write takes.
type DeployRelease struct {
	IfMatch string `header:"If-Match" maxLength:"11" pattern:"^\"[1-9][0-9]{0,8}\"$" doc:"The release's revision from which the spec was made, in quotes: with another one the spec is refused with 412, so that nobody's change is lost (RFC 9110, section 13.1.1)." example:"\"7\""`
}

// Revision returns the revision in If-Match; 0 if there is none.
func (d DeployRelease) Revision() int {
	n, _ := strconv.Atoi(strings.Trim(d.IfMatch, `"`)) // the pattern has checked it
	return n
}

// Replace is what a write of a Secret or ConfigMap takes beside what every write takes.
type Replace struct {
	IfMatch string `header:"If-Match" maxLength:"130" pattern:"^\"[!#-~]{1,128}\"$" doc:"The digest of the content from which the new one was made, in quotes: with another one the write is refused with 412, so that nobody's change is lost (RFC 9110, section 13.1.1)." example:"\"3f1c0a9e\""`
}

// Digest returns the digest in If-Match; empty if there is none.
func (r Replace) Digest() string { return strings.Trim(r.IfMatch, `"`) }

// MaxWait is the longest that a call may wait.
const MaxWait = 10 * time.Minute

// Wait is what every call takes that can wait for an outcome.
type Wait struct {
	Wait string `query:"wait" maxLength:"16" doc:"Wait this long for the outcome, at most 10m. Answers 200 with the outcome (also when it is Failed: see status.diagnosis), or 202 when there is none yet. The field outcome of the answer to a write is that of this write, also when a later change superseded it." example:"60s"`
}

// Duration returns the wait asked for, or zero for none.
func (w Wait) Duration() (time.Duration, error) {
	if w.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(w.Wait)
	if err != nil || d < 0 || d > MaxWait {
		return 0, problem.Errorf(problem.Invalid, "give a duration such as 60s, at most 10m",
			"%s is not a time to wait", fmt.Sprintf("%.20q", w.Wait)).WithField("query.wait")
	}
	return d, nil
}

// Lines is what selects the lines of any log.
type Lines struct {
	Follow bool   `query:"follow" doc:"Go on with new lines until the caller hangs up."`
	Tail   int    `query:"tail" default:"-1" minimum:"-1" maximum:"1000000" doc:"Last lines of each pod; -1 for all."`
	Since  string `query:"since" maxLength:"40" doc:"No lines older than this: a duration, or a time (RFC 3339)." example:"10m"`
	Grep   string `query:"grep" maxLength:"256" doc:"Only lines that contain this text, as it is: no regular expression." example:"timeout"`
	Accept string `header:"Accept" hidden:"true" doc:"text/plain for the bare lines."`
}

// Logs is what selects the lines of containers.
type Logs struct {
	Lines
	Previous  bool   `query:"previous" doc:"Of the run before the last restart."`
	Container string `query:"container" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Container; the App's own when absent."`
}

// Traffic is what selects the figures of public requests.
type Traffic struct {
	Since string `query:"since" default:"1h" enum:"1h,24h" doc:"How far back: an hour in minutes, or a day in hours."`
}

// Operation is the path of an operation.
type Operation struct {
	ID string `path:"id" maxLength:"64" pattern:"^[a-z0-9]+$" doc:"ID of the operation: Operation-Id of the answer to a write." example:"3vq7k2m5x4h6t8w9n0c1d2f3g5"`
}

// Events is what selects events.
type Events struct {
	Follow      bool   `query:"follow" doc:"Go on after the App has settled, until the caller hangs up."`
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"ID of the last event that was seen: it is not sent again."`
}

// Collect is what selects records of the audit log, and not calls.
type Collect struct {
	After int64 `query:"after" default:"-1" minimum:"-1" doc:"Each record with a higher number, oldest first, for a collector of the whole log. Of the other parameters, only limit goes with it."`
}

// Node is the path of a node.
type Node struct {
	Name string `path:"name" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Name of the node." example:"node-1"`
}

// EventFilter selects the events of a namespace.
type EventFilter struct {
	Kind  string `query:"kind" maxLength:"63" pattern:"^[A-Za-z]+$" doc:"Kind of the object that they are about." example:"Pod"`
	Name  string `query:"name" maxLength:"253" pattern:"^[a-z0-9][a-z0-9.:-]*$" doc:"Name of the object that they are about."`
	Type  string `query:"type" enum:"Normal,Warning" doc:"Type of event."`
	Since string `query:"since" maxLength:"16" doc:"No events older than this." example:"10m"`
	Limit int    `query:"limit" default:"200" minimum:"1" maximum:"1000" doc:"How many events at most."`
}

// Exec is a command in a container.
type Exec struct {
	Command   []string `query:"command,explode" required:"true" minItems:"1" maxItems:"256" doc:"The program, then each of its arguments: the parameter comes once for each. No shell takes them apart."`
	Pod       string   `query:"pod" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$" doc:"Pod of the App; the newest that is ready when absent."`
	Container string   `query:"container" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Container; the App's own when absent."`
	Stdin     bool     `query:"stdin" doc:"The command reads channel 0."`
	TTY       bool     `query:"tty" doc:"With a terminal, whose size is told on channel 4. Errors come on channel 1 too."`
}

// PortForward is a port of a pod.
type PortForward struct {
	Port int    `query:"port" required:"true" minimum:"1" maximum:"65535" doc:"Port of the pod, whether the App names it or not."`
	Pod  string `query:"pod" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$" doc:"Pod of the App; the newest that is ready when absent."`
}

// Apply is what the apply call takes beside its body.
type Apply struct {
	Set       string `query:"set" required:"true" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the set: what was applied under it before and is not among the manifests is pruned." example:"web-extras"`
	Namespace string `query:"namespace" required:"true" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Namespace of the set's inventory, and of manifests that name none." example:"production"`
	Prune     bool   `query:"prune" default:"true" doc:"Delete what left the set. What is not pruned stays in the inventory."`
	Diff      bool   `query:"diff" doc:"Tell of each object what changes, as a unified diff. Values of Secrets are masked."`

	ForceConflicts bool `query:"forceConflicts" doc:"Take over fields of the set's objects that others have set since, as kubectl apply --server-side --force-conflicts does. An object that is not the set's stays refused."`
}

// ManifestSet is the path of a set of manifests.
type ManifestSet struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Namespace that the agent manages." example:"production"`
	Name      string `path:"name" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the set." example:"web-extras"`
}

// Release is the path of a Helm release.
type Release struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Namespace that the agent manages." example:"production"`
	Name      string `path:"name" maxLength:"53" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the release." example:"guide"`
}

// WaitRelease is what the calls about a release take that can wait for an outcome.
type WaitRelease struct {
	Wait string `query:"wait" maxLength:"16" doc:"Wait this long for the outcome, at most 10m. Answers 200 with the outcome (also when the revision is failed: see description), or 202 when there is none yet." example:"60s"`
}

// Duration returns the wait asked for, or zero for none.
func (w WaitRelease) Duration() (time.Duration, error) { return Wait(w).Duration() }

// Bounds of a range of time before now.
const (
	MaxHistory     = 30 * 24 * time.Hour
	DefaultHistory = time.Hour
)

// History is a range of time until now.
type History struct {
	Since string `query:"since" maxLength:"40" doc:"From this on: a duration, or a time (RFC 3339); one hour when absent, 30 days at most." example:"24h"`
}

// Cost selects costs.
type Cost struct {
	Since string `query:"since" default:"24h" maxLength:"40" doc:"From this on: a duration, or a time (RFC 3339), 30 days ago at most." example:"168h"`
	By    string `query:"by" enum:"namespace,app" default:"namespace" doc:"What is summed up."`
}

// MetricsHistory selects metrics over time.
type MetricsHistory struct {
	History
	Step string `query:"step" maxLength:"16" doc:"Time between two values, at least 15s and in whole seconds; about 240 values when absent, 1000 at most." example:"6m"`
	By   string `query:"by" enum:"app,pod" default:"app" doc:"pod: each pod's values, instead of their sum."`
}
