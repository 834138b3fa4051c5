// Package crontime reads when CronJobs run, as Kubernetes does.
package crontime

import (
	"cmp"
	"strings"
	"time"
	_ "time/tzdata" // images and Windows have no time zones

	"github.com/robfig/cron/v3"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Parse reads a schedule in its time zone. Without one it is that of the CronJob controller's
// machine, which is UTC nearly everywhere.
func Parse(text, timeZone string) (cron.Schedule, error) {
	if !strings.Contains(text, "TZ=") {
		text = "TZ=" + cmp.Or(timeZone, "UTC") + " " + text
	}
	return cron.ParseStandard(text)
}

// Next returns when an App runs next; the zero time if it has no schedule, or none that will start
// a run.
func Next(spec runnerapi.AppSpec, now time.Time) time.Time {
	s := spec.Schedule
	if s == nil || s.Suspended {
		return time.Time{}
	}
	parsed, err := Parse(s.Cron, s.TimeZone)
	if err != nil {
		return time.Time{}
	}
	return parsed.Next(now)
}
