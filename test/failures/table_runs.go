package failures

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func ofRuns(i Images) []Failure {
	fails := runs(i.Hello, "-crash-after=50ms", "-exit-code=7")
	cron := func(s runnerapi.Schedule) runnerapi.AppSpec {
		return with(as(runnerapi.TypeCronJob, fails), func(a *runnerapi.AppSpec) { a.Schedule = &s })
	}
	alone := "an App is not a bare pod"
	return []Failure{
		{
			Name: "failing-job", Spec: once(fails), Signal: FailedRun,
			Cause: runnerapi.CauseJobFailed, Object: "pod/", Message: "with exit code 7", Fix: "read why",
		},
		{
			Name: "retried-job", Signal: FailedRun, Slow: true,
			Spec:  with(once(fails), func(s *runnerapi.AppSpec) { s.Job.Retries = new(int32(1)) }),
			Cause: runnerapi.CauseJobFailed, Object: "pod/", Message: "after 2 tries", Fix: "read why",
		},
		{
			Name: "late-job", Signal: FailedRun,
			Spec: with(as(runnerapi.TypeJob, runs(i.Hello)), func(s *runnerapi.AppSpec) {
				s.Job = &runnerapi.JobOptions{DeadlineSeconds: new(int64(2))}
			}),
			Cause: runnerapi.CauseDeadlinePassed, Object: "job/", Message: "deadline of 2 s", Fix: "eadlineSeconds",
		},
		{
			Name: "never-due", Spec: cron(runnerapi.Schedule{Cron: "0 0 31 2 *"}),
			Cause: runnerapi.CauseNeverDue, Object: "cronjob/", Message: "no time matches its schedule 0 0 31 2 *", Fix: "schedule",
		},
		{
			Name: "failing-cron", Spec: with(cron(runnerapi.Schedule{Cron: "* * * * *"}), func(s *runnerapi.AppSpec) {
				s.Job = &runnerapi.JobOptions{Retries: new(int32(0))}
			}),
			Later: true, Slow: true, Lives: true, Signal: FailedRun,
			Cause: runnerapi.CauseJobFailed, Object: "pod/failing-cron-", Message: "with exit code 7", Fix: "read why",
		},
		{
			Name: "skipped-cron", Later: true, Slow: true, Lives: true,
			Spec:  with(cron(runnerapi.Schedule{Cron: "* * * * *", StartingDeadlineSeconds: new(int64(10))}), func(s *runnerapi.AppSpec) { s.Args = nil }),
			Cause: runnerapi.CauseRunsSkipped, Object: "job/skipped-cron-", Message: "has not ended", Fix: "eadlineSeconds",
		},
		{
			Name: "bare-crashing", Spec: once(fails), NoApp: alone, Change: bare, Signal: Ended("Error"),
			Cause: runnerapi.CauseJobFailed, Object: "pod/bare-crashing", Message: "exit code 7", Fix: "read why",
		},
		{
			Name: "bare-no-image", Spec: runs("apps.test/no-such-image:1"), NoApp: alone, Change: bare, Signal: unpulled,
			Cause: runnerapi.CauseImageNotFound, Object: "pod/bare-no-image", Message: "does not exist", Fix: "docker push",
		},
		{
			// Killed, not ended by itself: a Job counts a pod that exits with 0 as done though it
			// was evicted.
			Name: "evicted", Spec: once(runs(i.Hello, "-flood-logs", "-ignore-term")), NoApp: "an App has no limit of ephemeral storage", Slow: true,
			Change: pod(func(p *corev1.PodSpec) {
				p.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("100Ki")}
			}),
			Signal: FailedRun, Cause: runnerapi.CauseEvicted, Object: "pod/evicted-", Message: "evicted", Fix: "ephemeral-storage",
		},
	}
}
