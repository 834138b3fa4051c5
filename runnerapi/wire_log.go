package runnerapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxLogLine bounds one line on the wire: the container runtimes cut a line at
// 16 KiB, and every byte of it may need six in JSON.
const maxLogLine = 256 << 10

// logRecord is one line of the NDJSON: a line of the log, or, last of all, why
// the log broke off.
type logRecord struct {
	LogLine
	Error *Error `json:"error,omitempty"`
}

// decodeLogLine decodes one line of the NDJSON. The line with the reason why the log broke off
// becomes the error.
func decodeLogLine(raw []byte) (LogLine, error) {
	var rec logRecord
	if err := json.Unmarshal(raw, &rec); err != nil {
		return LogLine{}, fmt.Errorf("log line: %w", err)
	}
	if rec.Error != nil {
		return LogLine{}, rec.Error
	}
	return rec.LogLine, nil
}

// readLog calls emit for each line of the NDJSON. It ends without an error only
// where the log did.
func readLog(r io.Reader, emit func(LogLine) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), maxLogLine)
	for lines.Scan() {
		raw := bytes.TrimSpace(lines.Bytes())
		if len(raw) == 0 {
			continue
		}
		line, err := decodeLogLine(raw)
		if err != nil {
			return err
		}
		if err := emit(line); err != nil {
			return &stopped{err}
		}
	}
	return lines.Err()
}

// stopped is the receiver's own wish to end, as against a broken log.
type stopped struct{ reason error }

func (s *stopped) Error() string { return s.reason.Error() }

func (s *stopped) Unwrap() error { return s.reason }

// encoder writes lines in one of the two formats.
type encoder func(buf *bytes.Buffer, rec logRecord)

func encodeNDJSON(buf *bytes.Buffer, rec logRecord) {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if rec.Error != nil {
		_ = enc.Encode(LogError{Error: *rec.Error}) // strings and numbers only: it cannot fail
		return
	}
	_ = enc.Encode(rec.LogLine)
}

func encodeText(buf *bytes.Buffer, rec logRecord) {
	if rec.Error != nil {
		fmt.Fprintf(buf, "error: %v\n", rec.Error)
		return
	}
	buf.WriteString(rec.Line)
	buf.WriteByte('\n')
}
