package logs

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

func TestReadLineCutsWhatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", 3*maxLogLine)
	r := bufio.NewReaderSize(strings.NewReader("short\r\n"+long+"\nafter\nno end"), 64)
	var lines []string
	for {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		lines = append(lines, line)
	}
	assert.Equal(t, []string{"short", long[:maxLogLine] + cut, "after", "no end"}, lines)
}

func TestSplitTime(t *testing.T) {
	at, line := splitTime("2026-05-04T12:00:00.000000001Z hello world")
	assert.Equal(t, time.Date(2026, 5, 4, 12, 0, 0, 1, time.UTC), at)
	assert.Equal(t, "hello world", line)
	at, line = splitTime("no time")
	assert.True(t, at.IsZero())
	assert.Equal(t, "no time", line)
}

func TestSkipperLeavesOutWhatWasRead(t *testing.T) {
	at := func(n int) podLine { return podLine{line: runnerapi.LogLine{Time: time.Unix(int64(n), 0)}} }
	s := skipper{from: position{at: time.Unix(5, 0), times: 2}}
	var kept []int64
	for _, l := range []podLine{at(4), at(5), at(5), at(5), at(6)} {
		if !s.read(l) {
			kept = append(kept, l.line.Time.Unix())
		}
	}
	assert.Equal(t, []int64{5, 6}, kept, "the third line of that instant is new")
}

func FuzzReadLine(f *testing.F) {
	f.Add("2026-05-04T12:00:00Z hello\nworld", 64)
	f.Add(strings.Repeat("y", 20000), 16)
	f.Add("\xff\x00\n\n", 1)
	f.Fuzz(func(t *testing.T, log string, buffer int) {
		r := bufio.NewReaderSize(strings.NewReader(log), min(max(buffer, 16), 1<<16))
		for n := 0; ; n++ {
			line, err := readLine(r)
			if err != nil {
				break
			}
			if n > len(log) || len(line) > 4*maxLogLine || !utf8.ValidString(line) {
				t.Fatalf("line %d of %q: %q", n, log, line)
			}
			splitTime(line)
		}
	})
}
