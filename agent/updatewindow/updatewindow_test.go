package updatewindow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/updatewindow"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return when
}

// 2026-11-21 is a Saturday.
func TestContains(t *testing.T) {
	for _, c := range []struct {
		windows, now string
		open         bool
	}{
		{"", "2026-11-21T12:00:00Z", true},
		{"Sat,Sun 02:00-04:00 Europe/Berlin", "2026-11-21T00:59:59Z", false},
		{"Sat,Sun 02:00-04:00 Europe/Berlin", "2026-11-21T01:00:00Z", true},
		{"Sat,Sun 02:00-04:00 Europe/Berlin", "2026-11-21T03:00:00Z", false},
		{"Sat,Sun 02:00-04:00 Europe/Berlin", "2026-07-18T00:00:00Z", true}, // summer time
		{"Mon-Fri 02:00-04:00", "2026-11-21T03:00:00Z", false},
		{"fri-mon 02:00-04:00", "2026-11-22T03:00:00Z", true},
		{"Fri 22:00-04:00", "2026-11-21T03:59:00Z", true}, // opened on Friday
		{"Fri 22:00-04:00", "2026-11-21T22:30:00Z", false},
		{"Sat 00:00-24:00", "2026-11-21T23:59:00Z", true},
		{"Sat 00:00-24:00", "2026-11-22T00:00:00Z", false},
		{"22:00-24:00", "2026-11-21T23:59:00Z", true},
		{"Mon 01:00-02:00; Sat 12:00-13:00", "2026-11-21T12:30:00Z", true},
	} {
		list, err := updatewindow.Parse(c.windows)
		require.NoError(t, err, c.windows)
		assert.Equal(t, c.open, list.Contains(at(t, c.now)), "%s at %s", c.windows, c.now)
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ windows, now, next string }{
		{"", "2026-11-21T12:00:00Z", "2026-11-21T12:00:00Z"},
		{"Sat,Sun 02:00-04:00 Europe/Berlin", "2026-11-21T12:00:00Z", "2026-11-22T01:00:00Z"},
		{"Sat 02:00-04:00", "2026-11-21T12:00:00Z", "2026-11-28T02:00:00Z"},
		{"Sat 02:00-04:00; 13:00-14:00", "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"},
		{"Sun 02:30-03:00 Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"}, // an hour that is left out
	} {
		list, err := updatewindow.Parse(c.windows)
		require.NoError(t, err, c.windows)
		assert.True(t, at(t, c.next).Equal(list.Next(at(t, c.now))), "%s after %s: %s", c.windows, c.now, list.Next(at(t, c.now)))
	}
}

func TestParse_RefusesInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"always":                            "has no time such as",
		"Sat":                               "has no time such as",
		"Sat 02:00":                         "not a time from and to",
		"Caturday 02:00-04:00":              `"caturday" is not a day`,
		"Sat 02:00-04:00 Berlin":            `"Berlin" is not a time zone`,
		"02:00-04:00 Local":                 `"Local" is not a time zone`,
		"Sat 2-4:00":                        "not a time of the day",
		"Sat 02:00-25:00":                   `"25:00" is not a time of the day`,
		"Sat 02:00-02:00":                   "not a time at all",
		"Sat 02:00-04:00 UTC Sun 1:00-2:00": "separate windows with a semicolon",
	} {
		_, err := updatewindow.Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Sat,Sun 02:00-04:00 Europe/Berlin")
	f.Add("Fri-Mon 22:00-04:00; 00:00-24:00 ../etc/passwd")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := updatewindow.Parse(text)
		if err != nil || len(list) == 0 {
			return
		}
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		if next := list.Next(now); !next.After(now) || next.After(now.AddDate(0, 0, 9)) {
			t.Fatalf("%q opens at %s", text, next)
		}
	})
}
