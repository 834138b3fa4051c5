package podlog

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func streamOf(log string, buffer int) *Stream {
	return &Stream{pod: "web-1", lines: bufio.NewReaderSize(strings.NewReader(log), buffer)}
}

func TestStream_CutsLongLines(t *testing.T) {
	stamp := time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.UTC)
	at := stamp.Format(time.RFC3339Nano) + " "
	exact, long := strings.Repeat("x", MaxLine), strings.Repeat("y", 3*MaxLine)
	s := streamOf(at+"short\r\n"+at+exact+"\n"+at+long+"\n"+at+"after\n"+at+"no end", 64)
	var lines []string
	for {
		line, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		assert.Equal(t, stamp, line.Time)
		assert.Equal(t, "web-1", line.Pod)
		lines = append(lines, line.Line)
	}
	assert.Equal(t, []string{"short", exact, long[:MaxLine] + cut, "after", "no end"}, lines)
}

func TestSplitTime(t *testing.T) {
	at, line := splitTime("2026-05-04T12:00:00.000000001Z hello world")
	assert.Equal(t, time.Date(2026, 5, 4, 12, 0, 0, 1, time.UTC), at)
	assert.Equal(t, "hello world", line)
	at, line = splitTime("no time")
	assert.True(t, at.IsZero())
	assert.Equal(t, "no time", line)
}

func TestOptions(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	o := Options("web", runnerapi.LogOptions{Tail: 0, Since: time.Hour, Follow: true, Previous: true}, now)
	assert.Equal(t, "web", o.Container)
	assert.True(t, o.Timestamps && o.Follow && o.Previous)
	assert.Zero(t, *o.TailLines)
	assert.Equal(t, now.Add(-time.Hour), o.SinceTime.UTC())
	o = Options("web", runnerapi.LogOptions{Tail: -1}, now)
	assert.Nil(t, o.TailLines)
	assert.Nil(t, o.SinceTime)
}

func FuzzStream(f *testing.F) {
	f.Add("2026-05-04T12:00:00Z hello\nworld", 64)
	f.Add(strings.Repeat("y", 20000), 16)
	f.Add("\xff\x00\n\n", 1)
	f.Fuzz(func(t *testing.T, log string, buffer int) {
		s := streamOf(log, min(max(buffer, 16), 1<<16))
		for n := 0; ; n++ {
			line, err := s.Next()
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
			if n > len(log) || len(line.Line) > 4*MaxLine || !utf8.ValidString(line.Line) {
				t.Fatalf("line %d of %q: %q", n, log, line.Line)
			}
		}
	})
}
