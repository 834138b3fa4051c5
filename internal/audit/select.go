package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/moment"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a search takes and returns, by the names that pages use: pages know no wire.
type (
	// Filter selects calls.
	Filter = runnerapi.AuditFilter
	// Call is a call that was found.
	Call = runnerapi.AuditCall
	// Outcome is how a call ended.
	Outcome = runnerapi.AuditOutcome
	// Found is the part of the log that was found.
	Found = runnerapi.AuditList
)

// maxValue bounds a text of a filter, in bytes. The tags of the filter have the same bound.
const maxValue = 256

// selection is a filter that was checked.
type selection struct {
	runnerapi.AuditFilter
	since, until time.Time
}

// Check returns an error that names the field if no call can have a value of a filter.
func Check(f runnerapi.AuditFilter) error {
	_, err := selects(f, time.Now())
	return err
}

// CheckOutcome returns an error for a value that is not an AuditOutcome.
func CheckOutcome(text string) error {
	if slices.Contains(Outcomes, runnerapi.AuditOutcome(text)) {
		return nil
	}
	return fmt.Errorf("%q is not begun, done, refused or failed", printable.Clip(text))
}

func selects(f runnerapi.AuditFilter, now time.Time) (s selection, err error) {
	s.AuditFilter = f
	for field, value := range map[string]string{"by": f.By, "command": f.Command, "namespace": f.Namespace, "app": f.App, "text": f.Text} {
		if len(value) > maxValue {
			return s, invalid(field, "give a shorter text", "%s has more than %d bytes", field, maxValue)
		}
	}
	if f.Limit < 0 || f.Limit > maxCalls {
		return s, invalid("limit", "leave limit out, or give 1000 at most", "limit is not between 1 and %d", maxCalls)
	}
	if f.Outcome != "" {
		if err := CheckOutcome(string(f.Outcome)); err != nil {
			return s, invalid("outcome", "leave outcome out, or give one of these", "%v", err)
		}
	}
	if s.since, err = when("since", f.Since, now); err != nil {
		return s, err
	}
	s.until, err = when("until", f.Until, now)
	return s, err
}

// when reads the value of a field; the zero time if it is empty.
func when(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := moment.Parse(text, now)
	if err != nil {
		return t, invalid(field, "give a duration such as 2h, a date, or a time such as 2006-01-02T15:04, in UTC", "%v", err)
	}
	return t, nil
}

func invalid(field, fix, format string, args ...any) error {
	return problem.Errorf(problem.Invalid, fix, format, args...).WithField("query." + field)
}

// selects reports whether the filter selects a call.
func (s selection) selects(c *runnerapi.AuditCall) bool {
	return has(s.By, c.By()) && has(s.Command, c.Command) && has(s.App, c.About()) &&
		(s.Namespace == "" || s.Namespace == c.Within()) && (s.Outcome == "" || s.Outcome == c.Outcome) &&
		has(s.Text, string(c.Arguments), c.Message, string(c.Code), c.RequestID, c.Certificate, c.Operation, c.Recording, c.Approval) &&
		(s.since.IsZero() || !c.Time.Before(s.since)) && (s.until.IsZero() || c.Time.Before(s.until))
}

// has reports whether a text has this part, in any case of letters.
func has(part string, texts ...string) bool {
	part = strings.ToLower(strings.TrimSpace(part))
	return part == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), part) })
}
