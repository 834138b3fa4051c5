package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/crontime"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// startedBy is how long the CronJob controller may take to act on a time that has come.
const startedBy = 10 * time.Second

// The CronJob controller's reasons for starting no run.
var (
	notStarted  = []string{"FailedCreate", "MissSchedule"}
	noSuchTimes = []string{"UnknownTimeZone", "UnparseableSchedule", "InvalidSchedule", "UnParseableCronJobSchedule"}
)

// CronReasons returns the reasons of the events about a CronJob that WantsCronEvents asks for.
func CronReasons() []string { return append(append([]string(nil), notStarted...), noSuchTimes...) }

// CronEvent is why the controller started no run of a CronJob.
type CronEvent struct{ Reason, Message string }

// due finds a CronJob whose time never comes, or whose runs do not start on time. A suspended one
// starts none on purpose.
func due(ev *Evidence) Finding {
	w := ev.CronJob
	if w == nil || ptr.Deref(w.Spec.Suspend, false) {
		return Finding{}
	}
	schedule, err := scheduleOf(w)
	if err != nil { // this process may know fewer time zones than the cluster
		return Finding{Diagnosis: unstarted(w, ev.Cron), Recheck: later(startedBy)}
	}
	if schedule.Next(ev.Now).IsZero() {
		return found(neverDue(w, "no time matches its schedule "+w.Spec.Schedule,
			"correct schedule.cron to a time that exists"))
	}
	first := schedule.Next(lastRun(w))
	if len(w.Status.Active) == 0 {
		if left := first.Add(startedBy).Sub(ev.Now); left > 0 {
			return Finding{}
		}
		return Finding{Diagnosis: unstarted(w, ev.Cron), Recheck: later(ev.Now.Sub(first))}
	}
	if w.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent {
		return Finding{}
	}
	if left := lostAt(w, schedule, first).Sub(ev.Now); left > 0 {
		return Finding{Recheck: left}
	}
	return found(blocked(w, first))
}

// lostAt returns when a run can no longer start that was due at first while another continues: its
// starting deadline has passed, or the next one is due. Until then the controller starts it as soon
// as the other ends.
func lostAt(w *batchv1.CronJob, schedule cron.Schedule, first time.Time) time.Time {
	at := schedule.Next(first)
	if limit := w.Spec.StartingDeadlineSeconds; limit != nil {
		if end := first.Add(time.Duration(*limit) * time.Second); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at.Add(startedBy)
}

// lastRun returns the time of the last run, or when there could be a first one.
func lastRun(w *batchv1.CronJob) time.Time {
	if at := w.Status.LastScheduleTime; at != nil && at.After(w.CreationTimestamp.Time) {
		return at.Time
	}
	return w.CreationTimestamp.Time
}

func scheduleOf(w *batchv1.CronJob) (cron.Schedule, error) {
	return crontime.Parse(w.Spec.Schedule, ptr.Deref(w.Spec.TimeZone, ""))
}

// WantsCronEvents reports whether a run is due that was not started: only events contain the
// reason.
func WantsCronEvents(w *batchv1.CronJob, now time.Time) bool {
	if ptr.Deref(w.Spec.Suspend, false) || len(w.Status.Active) > 0 {
		return false
	}
	schedule, err := scheduleOf(w)
	if err != nil {
		return true
	}
	first := schedule.Next(lastRun(w))
	return !first.IsZero() && !first.Add(startedBy).After(now)
}

func neverDue(w *batchv1.CronJob, why, fix string) *runnerapi.Diagnosis {
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseNeverDue, Object: "cronjob/" + w.Name, Message: "no run ever starts: " + why, Fix: fix,
	}
}

// unstarted returns the diagnosis of the controller's event about a run that is due; nil if there
// is none.
func unstarted(w *batchv1.CronJob, said CronEvent) *runnerapi.Diagnosis {
	switch {
	case slices.Contains(noSuchTimes, said.Reason):
		return neverDue(w, clip(said.Message), "correct schedule.cron and schedule.timeZone")
	case said.Reason == "FailedCreate":
		return Refused(createPrefix.ReplaceAllString(said.Message, ""), "cronjob/"+w.Name)
	case said.Reason == "MissSchedule":
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseRunsSkipped, Object: "cronjob/" + w.Name,
			Message: "a run was due and did not start within its starting deadline: " + clip(said.Message),
			Fix:     "raise schedule.startingDeadlineSeconds; the next run starts when it is due",
		}
	}
	return nil
}

// blocked returns the diagnosis of a CronJob whose runs a run that does not end keeps from
// starting.
func blocked(w *batchv1.CronJob, first time.Time) *runnerapi.Diagnosis {
	name := w.Status.Active[0].Name
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseRunsSkipped, Object: "job/" + name,
		Message: fmt.Sprintf("run %s has not ended, so the run of %s and those after it do not start: schedule.concurrency is Forbid",
			name, first.UTC().Format(time.RFC3339)),
		Fix: fmt.Sprintf("see in its log (logs) why the run does not end, and end it (kubectl -n %s delete job %s); "+
			"set job.deadlineSeconds so that Kubernetes ends such a run, or schedule.concurrency to Replace", w.Namespace, name),
	}
}
