// Package moment reads durations and times as people write them: in flags, parameters and forms.
package moment

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// layouts are those of a time. One without an offset is in UTC. The second is that of a browser's
// field.
var layouts = []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", time.DateTime, time.DateOnly}

// Duration reads a duration. As Prometheus does, it takes days of 24 hours, weeks, and years of
// 365 days, beside what Go takes: 90m, 1.5h, 30d, 1y.
func Duration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}

// Parse reads a time, or a duration before now.
func Parse(text string, now time.Time) (time.Time, error) {
	if d, err := Duration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 10m or 7d nor a time such as 2026-01-02 or 2026-01-02T15:04:05Z", printable.Clip(text))
}
