package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxLogLine bounds one line on the wire: the container runtimes cut a line at
// 16 KiB, and every byte of it may need six in JSON.
const MaxLogLine = 256 << 10

// LogRecord is one line of the NDJSON: a line of the log, or, last of all, why
// the log broke off.
type LogRecord struct {
	runnerapi.LogLine
	Error *runnerapi.Error `json:"error,omitempty"`
}

// DecodeLogLine decodes one line of the NDJSON. The line with the reason why the log broke off
// becomes the error.
func DecodeLogLine(raw []byte) (runnerapi.LogLine, error) {
	var rec LogRecord
	if err := json.Unmarshal(raw, &rec); err != nil {
		return runnerapi.LogLine{}, fmt.Errorf("log line: %w", err)
	}
	if rec.Error != nil {
		return runnerapi.LogLine{}, rec.Error
	}
	return rec.LogLine, nil
}

// ReadLog calls emit for each line of the NDJSON. It ends without an error only
// where the log did.
func ReadLog(r io.Reader, emit func(runnerapi.LogLine) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), MaxLogLine)
	for lines.Scan() {
		raw := bytes.TrimSpace(lines.Bytes())
		if len(raw) == 0 {
			continue
		}
		line, err := DecodeLogLine(raw)
		if err != nil {
			return err
		}
		if err := emit(line); err != nil {
			return &StoppedError{err}
		}
	}
	return lines.Err()
}

// StoppedError is the receiver's own wish to end, as against a broken log.
type StoppedError struct{ Reason error }

func (s *StoppedError) Error() string { return s.Reason.Error() }

func (s *StoppedError) Unwrap() error { return s.Reason }

// Encoder writes lines in one of the two formats.
type Encoder func(buf *bytes.Buffer, rec LogRecord)

// EncodeNDJSON writes a line as JSON.
func EncodeNDJSON(buf *bytes.Buffer, rec LogRecord) {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if rec.Error != nil {
		_ = enc.Encode(runnerapi.LogError{Error: *rec.Error}) // strings and numbers only: it cannot fail
		return
	}
	_ = enc.Encode(rec.LogLine)
}

// EncodeText writes the text of a line alone.
func EncodeText(buf *bytes.Buffer, rec LogRecord) {
	if rec.Error != nil {
		fmt.Fprintf(buf, "error: %v\n", rec.Error)
		return
	}
	buf.WriteString(rec.Line)
	buf.WriteByte('\n')
}
