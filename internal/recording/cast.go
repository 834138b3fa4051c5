package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// The event codes of asciicast v2 that a recording has. It has no input ("i").
const (
	codeOutput = "o"
	codeResize = "r"
	codeMarker = "m"
)

// The size of a terminal until its first size is known, and of a session without a terminal.
const defaultWidth, defaultHeight = 80, 24

// header is the first line of a recording. Players ignore the last field.
type header struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title"`
	Session   about  `json:"pipeops"`
}

// about names the session in a header.
type about struct {
	Recording string `json:"recording"`
	Runner    string `json:"runner"`
	RequestID string `json:"requestId"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func newHeader(id string, at time.Time, s backend.Session) ([]byte, error) {
	line, err := json.Marshal(header{
		Version: 2, Width: defaultWidth, Height: defaultHeight, Timestamp: at.Unix(),
		Title:   fmt.Sprintf("%s: exec %s/%s", s.Runner, s.Namespace, s.Name),
		Session: about{id, s.Runner, s.RequestID, s.Namespace, s.Name},
	})
	return append(line, '\n'), err
}

// maxHeader bounds a header, in bytes.
const maxHeader = 4 << 10

// decodeHeader reads the header from the beginning of a recording.
func decodeHeader(text []byte) (header, error) {
	var h header
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if len(line) > maxHeader {
		return h, fmt.Errorf("the header has more than %d bytes", maxHeader)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, fmt.Errorf("the header makes no sense: %w", err)
	}
	return h, nil
}

// event returns the line of an event.
func event(after time.Duration, code, data string) []byte {
	return fmt.Appendf(nil, "[%.6f, %q, %s]\n", after.Seconds(), code, quote(data))
}

// quote returns a JSON string without any control character. JSON itself does not escape DEL and
// C1, which terminals obey.
func quote(data string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(data) // no text fails
	text := strings.TrimSuffix(b.String(), "\n")
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// whole returns the length of p without an incomplete last character.
func whole(p []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		at := len(p) - back
		if !utf8.RuneStart(p[at]) {
			continue
		}
		if !utf8.FullRune(p[at:]) {
			return at
		}
		break
	}
	return len(p)
}
