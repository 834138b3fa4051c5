package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// hourly is a CronJob that is due at each hour, and was at the hour before noon last.
func hourly(change func(*batchv1.CronJob)) *batchv1.CronJob {
	last := metav1.NewTime(time.Date(2026, 3, 4, 11, 0, 0, 0, time.UTC))
	w := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", CreationTimestamp: metav1.NewTime(last.Add(-48 * time.Hour))},
		Spec:       batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: new("Etc/UTC"), ConcurrencyPolicy: batchv1.ForbidConcurrent},
		Status:     batchv1.CronJobStatus{LastScheduleTime: &last},
	}
	change(w)
	return w
}

func active(w *batchv1.CronJob) { w.Status.Active = []corev1.ObjectReference{{Name: "report-1"}} }

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-03-04T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

func TestCronJob_NeverStarts(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*batchv1.CronJob)
		now     string
		said    CronEvent
		cause   runnerapi.Cause // none for a CronJob that does well
		message string
		recheck time.Duration
	}{
		"not due yet": {change: func(*batchv1.CronJob) {}, now: "11:59:59"},
		"a day that no month has": {
			change: func(w *batchv1.CronJob) { w.Spec.Schedule = "0 0 31 2 *" }, now: "11:30:00",
			cause: runnerapi.CauseNeverDue, message: "no time matches its schedule 0 0 31 2 *",
		},
		"a leap day": {change: func(w *batchv1.CronJob) { w.Spec.Schedule = "0 0 29 2 *" }, now: "11:30:00"},
		"suspended by its owner": {
			change: func(w *batchv1.CronJob) { w.Spec.Suspend, w.Spec.Schedule = new(true), "0 0 31 2 *" }, now: "11:30:00",
		},
		"a run that may still be started": {change: active, now: "12:30:00", recheck: 30*time.Minute + startedBy},
		"a run that hangs": {
			change: active, now: "13:00:10", cause: runnerapi.CauseRunsSkipped, message: "run report-1 has not ended, so the run of 2026-03-04T12:00:00Z",
		},
		"a run that hangs past the starting deadline": {
			change: func(w *batchv1.CronJob) { active(w); w.Spec.StartingDeadlineSeconds = new(int64(60)) },
			now:    "12:01:10", cause: runnerapi.CauseRunsSkipped, message: "run report-1 has not ended",
		},
		"runs that may overlap": {
			change: func(w *batchv1.CronJob) { active(w); w.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent }, now: "13:00:10",
		},
		"a deadline that was missed": {
			change: func(*batchv1.CronJob) {}, now: "12:00:30", said: CronEvent{"MissSchedule", "Missed scheduled time to start a job: noon"},
			cause: runnerapi.CauseRunsSkipped, message: "starting deadline", recheck: 15 * time.Second,
		},
		"a run that is refused": {
			change: func(*batchv1.CronJob) {}, now: "12:00:30",
			said:  CronEvent{"FailedCreate", `Error creating job: jobs.batch "report-2" is forbidden: exceeded quota: none, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0`},
			cause: runnerapi.CauseQuotaExceeded, message: "quota none", recheck: 15 * time.Second,
		},
		"a time zone that nobody knows": {
			change: func(w *batchv1.CronJob) { w.Spec.TimeZone = new("Mars/Olympus") }, now: "11:30:00",
			said:  CronEvent{"UnknownTimeZone", `invalid timeZone: "Mars/Olympus": unknown time zone Mars/Olympus`},
			cause: runnerapi.CauseNeverDue, message: "Mars/Olympus", recheck: 5 * time.Second,
		},
		"a time that the controller says nothing of": {change: func(*batchv1.CronJob) {}, now: "12:00:30", recheck: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := hourly(c.change)
			assert.Equal(t, c.said.Reason != "" || name == "a time that the controller says nothing of", WantsCronEvents(w, at(c.now)))
			f := Find(Evidence{Spec: runnerapi.AppSpec{Type: runnerapi.TypeCronJob}, CronJob: w, Cron: c.said, Now: at(c.now)})
			assert.Equal(t, c.recheck, f.Recheck)
			if c.cause == "" {
				assert.Nil(t, f.Diagnosis)
				return
			}
			require.NotNil(t, f.Diagnosis)
			assert.Equal(t, c.cause, f.Diagnosis.Cause)
			assert.Contains(t, f.Diagnosis.Message, c.message)
			checkFix(t, f.Diagnosis)
		})
	}
}
