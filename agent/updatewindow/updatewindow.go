// Package updatewindow implements the cluster owner's time windows, in which the agent may update
// itself: `Sat,Sun 02:00-04:00 Europe/Berlin`. The existing calendar libraries (cron, systemd's,
// Alertmanager's) only know points in time, or have their own notation that is hard to guess.
package updatewindow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the agent's image has no time zones
)

// maxWindows bounds what each heartbeat checks.
const maxWindows = 32

// Windows are the times when something may happen; no windows means always.
type Windows []Window

// Window opens at the same time on some days, and closes less than a day later.
type Window struct {
	days       [7]bool // the days on which it opens, Sunday first
	start, end int     // minutes of the day; an end that is not after start is on the next day
	zone       *time.Location
}

// Parse parses windows separated by semicolons: `[DAYS] HH:MM-HH:MM [ZONE]`. DAYS are `Sat,Sun` or
// `Mon-Fri`, and all days if left out. ZONE is an IANA time zone name, and UTC if left out.
func Parse(text string) (Windows, error) {
	var list Windows
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		w, err := parse(part)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		if list = append(list, w); len(list) > maxWindows {
			return nil, fmt.Errorf("more than %d windows", maxWindows)
		}
	}
	return list, nil
}

func parse(text string) (w Window, err error) {
	w.zone = time.UTC
	fields := strings.Fields(text)
	at := slices.IndexFunc(fields, func(f string) bool { return strings.Contains(f, ":") })
	switch {
	case at < 0:
		return w, errors.New("has no time such as 02:00-04:00")
	case at > 1 || len(fields) > at+2:
		return w, errors.New("has more than days, times and time zone; separate windows with a semicolon")
	}
	w.days = [7]bool{true, true, true, true, true, true, true}
	if at == 1 {
		if w.days, err = parseDays(fields[0]); err != nil {
			return w, err
		}
	}
	if w.start, w.end, err = parseTimes(fields[at]); err != nil {
		return w, err
	}
	if zone := fields[at+1:]; len(zone) == 1 {
		if w.zone, err = time.LoadLocation(zone[0]); err != nil || zone[0] == "Local" {
			return w, fmt.Errorf("%q is not a time zone such as Europe/Berlin", zone[0])
		}
	}
	return w, nil
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func parseDays(text string) (days [7]bool, err error) {
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		from, to, span := strings.Cut(part, "-")
		if !span {
			to = from
		}
		first, last := slices.Index(dayNames, from), slices.Index(dayNames, to)
		if first < 0 || last < 0 {
			return days, fmt.Errorf("%q is not a day such as Sat, or days such as Mon-Fri", part)
		}
		for d := first; ; d = (d + 1) % 7 {
			days[d] = true
			if d == last {
				break
			}
		}
	}
	return days, nil
}

func parseTimes(text string) (start, end int, err error) {
	from, to, found := strings.Cut(text, "-")
	if !found {
		return 0, 0, fmt.Errorf("%q is not a time from and to, such as 02:00-04:00", text)
	}
	for minutes, text := range map[*int]string{&start: from, &end: to} {
		clock, err := time.Parse("15:04", text)
		if text == "24:00" {
			clock, err = time.Time{}, nil
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%q is not a time of the day such as 02:00", text)
		}
		*minutes = clock.Hour()*60 + clock.Minute()
	}
	if start == end && from != "00:00" {
		return 0, 0, fmt.Errorf("%q is not a time at all; for a whole day write 00:00-24:00", text)
	}
	return start, end, nil
}

// Contains reports whether t is in one of the windows.
func (w Windows) Contains(t time.Time) bool {
	return len(w) == 0 || slices.ContainsFunc(w, func(w Window) bool { return w.contains(t) })
}

// contains follows the local clock, including its changes in spring and autumn.
func (w Window) contains(t time.Time) bool {
	t = t.In(w.zone)
	now, today := t.Hour()*60+t.Minute(), int(t.Weekday())
	if w.end > w.start {
		return w.days[today] && now >= w.start && now < w.end
	}
	return w.days[today] && now >= w.start || w.days[(today+6)%7] && now < w.end
}

// Next returns when the next window opens that is not open at t. Without windows it returns t
// itself.
func (w Windows) Next(t time.Time) time.Time {
	if len(w) == 0 {
		return t
	}
	var next time.Time
	for _, one := range w {
		if at := one.next(t); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (w Window) next(t time.Time) time.Time {
	local := t.In(w.zone)
	for i := range 8 {
		day := local.AddDate(0, 0, i)
		at := time.Date(day.Year(), day.Month(), day.Day(), w.start/60, w.start%60, 0, 0, w.zone)
		if w.days[int(day.Weekday())] && at.After(t) {
			return at
		}
	}
	return t // unreachable: each window opens on some day of the week
}
