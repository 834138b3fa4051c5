package source

import (
	"cmp"
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/condition"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// progressPause and healthPause are between looks at what was applied, while it
	// becomes ready and from then on.
	progressPause = 2 * time.Second
	healthPause   = 30 * time.Second
)

// notBefore returns how long the repository need not be asked again; 0 for now.
func (r *reconciler) notBefore(o *object, every time.Duration) time.Duration {
	s := o.Status
	at, err := time.Parse(time.RFC3339, s.CheckedAt)
	if err != nil || !o.observed() || s.ObservedLook != o.Annotations[objectmeta.Look] || !s.Phase.Applied() || s.Commit != s.Attempted {
		return 0
	}
	left := time.Duration(float64(every)*(1-jitter)) - r.now().Sub(at)
	return max(min(left, every), 0)
}

// withHealth writes into the status the state of what was applied. It returns when to look again:
// next at the latest.
func (r *reconciler) withHealth(ctx context.Context, o *object, s runnerapi.SourceStatus, next time.Duration) (runnerapi.SourceStatus, time.Duration) {
	phase, health, err := r.health(ctx, o)
	if err != nil { // what was known stands
		r.log.Warn().Err(err).Stringer("source", o.key()).Msg("failed to read the health of a source's objects; retrying")
		if !s.Phase.Applied() {
			s.Phase = runnerapi.SourceProgressing
		}
		return s, min(next, soon)
	}
	s.Phase, s.Health = phase, health
	switch phase {
	case runnerapi.SourceProgressing:
		r.condition(&s, condition.InProgress, "Progressing", health.Message)
		return s, min(next, progressPause)
	case runnerapi.SourceDegraded:
		r.condition(&s, condition.Failed, "Degraded", health.Message)
	default:
		r.condition(&s, condition.Current, "Applied", "commit "+s.Commit)
	}
	return s, min(next, healthPause)
}

func (r *reconciler) health(ctx context.Context, o *object) (runnerapi.SourcePhase, *runnerapi.SourceHealth, error) {
	if o.Spec.Type == runnerapi.SourceApp {
		app, err := r.apps.Get(ctx, appKey(o))
		if problem.Is(err, problem.NotFound) {
			return runnerapi.SourceDegraded, missing("App/" + appKey(o).String()), nil
		}
		if err != nil {
			return "", nil, err
		}
		return healthOfApp(app)
	}
	set, err := r.manifests.Get(ctx, o.key())
	if err != nil {
		return "", nil, err
	}
	return healthOfSet(set)
}

func healthOfApp(a runnerapi.App) (runnerapi.SourcePhase, *runnerapi.SourceHealth, error) {
	h := &runnerapi.SourceHealth{Object: "App/" + a.Namespace + "/" + a.Name, Message: a.Status.WaitingFor, Diagnosis: a.Status.Diagnosis}
	switch {
	case a.Settled() && (a.Status.Phase == runnerapi.PhaseHealthy || a.Status.Phase == runnerapi.PhasePaused):
		return runnerapi.SourceReady, nil, nil
	case a.Settled() && h.Diagnosis != nil:
		h.Message = h.Diagnosis.Message
		return runnerapi.SourceDegraded, h, nil
	}
	h.Message = cmp.Or(h.Message, "the agent to look at it")
	h.Message = "waits for " + h.Message
	return runnerapi.SourceProgressing, h, nil
}

// healthOfSet reports the first object that failed, or otherwise one that is missing, or that
// waits.
func healthOfSet(set runnerapi.ManifestSet) (runnerapi.SourcePhase, *runnerapi.SourceHealth, error) {
	for _, state := range []runnerapi.ObjectState{runnerapi.ObjectFailed, runnerapi.ObjectMissing, runnerapi.ObjectUnknown, runnerapi.ObjectInProgress} {
		for _, o := range set.Objects {
			if o.State != state {
				continue
			}
			h := &runnerapi.SourceHealth{Object: o.String(), Message: o.String() + ": " + o.Message, Diagnosis: o.Diagnosis}
			switch state {
			case runnerapi.ObjectMissing:
				return runnerapi.SourceDegraded, missing(o.String()), nil
			case runnerapi.ObjectInProgress:
				return runnerapi.SourceProgressing, h, nil
			}
			return runnerapi.SourceDegraded, h, nil
		}
	}
	return runnerapi.SourceReady, nil, nil
}

func missing(object string) *runnerapi.SourceHealth {
	return &runnerapi.SourceHealth{
		Object: object, Message: object + " was applied and is no longer there: have it applied again (pipeops-runner source sync)",
	}
}
