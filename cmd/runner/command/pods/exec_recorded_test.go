package pods

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
)

// TestExec_AnnouncesRecording in a separate line, on a raw terminal too.
func TestExec_AnnouncesRecording(t *testing.T) {
	for raw, end := range map[bool]string{false: ").\n", true: ").\n\r"} {
		var errs bytes.Buffer
		recorded((&cmdutil.CLI{Streams: cmdutil.Streams{Err: &errs}}), raw)("20260101t000000-0123456789abcdef\x1b")
		assert.Contains(t, errs.String(), "recorded for the owner of the cluster (recording 20260101t000000-0123456789abcdef")
		assert.NotContains(t, errs.String(), "\x1b")
		assert.True(t, bytes.HasSuffix(errs.Bytes(), []byte(end)), "%q", errs.String())
	}
}
