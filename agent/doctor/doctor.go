// Package doctor finds out what keeps an agent from working. It tries each thing that the agent
// needs separately, from where the agent runs, and shows the fix beside each failure. It changes
// nothing: it uses up no token, takes no tunnel from a running agent and writes to neither cluster
// nor control plane.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
)

// defaultTimeout bounds each check.
const defaultTimeout = 10 * time.Second

// Status is how a check ended.
type Status string

// A warning is something that works today; what is skipped could not be tried,
// or need not be.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is one line of the report.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Report is everything that was found, in an order that does not depend on
// which check was done first.
type Report struct {
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	Healthy  bool      `json:"healthy"`
	Findings []Finding `json:"findings"`
}

// Options describe what to examine.
type Options struct {
	// Config is what was understood of the configuration, ConfigErr what was not.
	Config    config.Config
	ConfigErr error
	// Kubernetes is the cluster, KubernetesErr why there is none.
	Kubernetes    *rest.Config
	KubernetesErr error
	Version       string
	// ReleaseKeys are those that the program was built with, with commas between.
	ReleaseKeys string
	Timeout     time.Duration    // of each check; 10 s when zero
	Now         func() time.Time // the clock; nil for the machine's
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return o
}

// Examine does all checks, those that do not need each other at the same time.
func Examine(ctx context.Context, opts Options) Report {
	e := newExam(opts)
	return e.report(ctx, e.checks())
}

// ExamineRunning does the checks that are about a running agent and that its heartbeats do not
// prove.
func ExamineRunning(ctx context.Context, opts Options) Report {
	e := newExam(opts)
	return e.report(ctx, slices.DeleteFunc(e.checks(), func(c check) bool { return !c.running }))
}

// report does checks. What a check waits for may be left out.
func (e *exam) report(ctx context.Context, checks []check) Report {
	found := make([][]Finding, len(checks))
	done := map[string]chan struct{}{}
	for _, c := range checks {
		done[c.name] = make(chan struct{})
	}
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() {
			defer close(done[c.name])
			for _, other := range append(c.needs, c.after...) {
				if earlier := done[other]; earlier != nil {
					<-earlier
				}
			}
			found[i] = e.do(ctx, c)
		})
	}
	all.Wait()
	report := Report{Version: e.Version, Time: e.Now().UTC(), Healthy: true}
	for _, findings := range found {
		for _, f := range findings {
			report.Healthy = report.Healthy && f.Status != Failed
			report.Findings = append(report.Findings, f)
		}
	}
	return report
}

// Failures returns the number of failures.
func (r Report) Failures() (n int) {
	for _, f := range r.Findings {
		if f.Status == Failed {
			n++
		}
	}
	return n
}
