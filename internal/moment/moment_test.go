package moment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/moment"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 11, 21, 20, 14, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-21T20:04:00Z", "1d12h": "2026-11-20T08:14:00Z", "2w": "2026-11-07T20:14:00Z",
		"2026-11-20": "2026-11-20T00:00:00Z", "2026-11-20T08:14": "2026-11-20T08:14:00Z", "2026-11-20 08:14:05": "2026-11-20T08:14:05Z",
		"2026-11-20T08:14:05+02:00": "2026-11-20T06:14:05Z", "2026-11-20T08:14:05.5Z": "2026-11-20T08:14:05.5Z",
	} {
		got, err := moment.Parse(text, now)
		require.NoError(t, err, text)
		assert.Equal(t, want, got.UTC().Format(time.RFC3339Nano), text)
	}
	for _, text := range []string{"", "0", "-5m", "yesterday", "2026-13-01", "5"} {
		_, err := moment.Parse(text, now)
		require.ErrorContains(t, err, "neither a duration such as 10m or 7d nor a time", text)
	}
}

func TestDuration_Unknown(t *testing.T) {
	for _, text := range []string{"", "soon", "5", "1x", "9999999y"} {
		_, err := moment.Duration(text)
		assert.Error(t, err, text)
	}
}

func FuzzDuration(f *testing.F) {
	f.Add("1d12h")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := moment.Duration(text); err == nil {
			if again, err := moment.Duration(d.String()); err != nil || again != d {
				t.Errorf("%q is %s, and that is %s, %v", text, d, again, err)
			}
		}
	})
}
