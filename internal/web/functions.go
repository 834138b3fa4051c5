package web

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// functions are what templates can call beside Go's own.
func functions() template.FuncMap {
	return template.FuncMap{
		"ago": cli.Ago, "age": cli.Age, "until": cli.Until, "cores": cli.Cores, "memory": cli.Memory,
		"utc":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"moment":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"sentence":  Sentence,
		"printable": printable.Text,
		"lines":     printable.Lines, // of any length
		"quoted":    quoted,
		"join":      strings.Join,
		"multiline": func(text string) bool { return strings.Contains(text, "\n") },
		"count":     count,
		"labels":    cli.Labels,
		"short":     cli.Short,
		"dict":      dict,
		"tone":      Tone,
		"outcomes":  func() any { return audit.Outcomes },
		"millis":    func(n int64) string { return (time.Duration(n) * time.Millisecond).String() },
	}
}

// count returns a number with its noun.
func count(n any, one, many string) string {
	if text := fmt.Sprint(n); text != "1" {
		return text + " " + many
	}
	return "1 " + one
}

// Sentence returns a message that begins with a capital letter.
func Sentence(message string) string {
	first, size := utf8.DecodeRuneInString(message)
	if size == 0 {
		return message
	}
	return string(unicode.ToUpper(first)) + message[size:]
}

// quoted returns a text in which what stands between backticks, such as a command line, is code.
func quoted(text string) template.HTML {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
	}
	for i, part := range parts {
		parts[i] = template.HTMLEscapeString(part)
		if i%2 == 1 {
			parts[i] = `<code class="wrap">` + parts[i] + "</code>"
		}
	}
	return template.HTML(strings.Join(parts, "")) //nolint:gosec // each part is escaped
}

// dict returns a map, so that a component has several arguments.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d arguments, which are not pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}

// tones are the colors of states, by the state's name in lower case.
var tones = map[string]string{
	"healthy": "good", "ready": "good", "ok": "good", "done": "good", "serving": "good", "running": "good",
	"succeeded": "good", "deployed": "good", "active": "good", "default": "good", "true": "good",
	"online": "good", "live": "good", "valid": "good", "delivered": "good", "approved": "good", "signs": "good", "up": "good",
	"progressing": "busy", "begun": "busy", "updating": "busy", "starting": "busy", "pending": "busy", "deleting": "busy", "waiting": "busy",
	"degraded": "warn", "warning": "warn", "paused": "warn", "readonly": "warn", "refused": "warn", "cordoned": "warn", "unknown": "warn", "suspended": "warn", "expired": "warn",
	"failed": "bad", "not ready": "bad", "invalid": "bad", "crashloop": "bad", "false": "bad",
	"offline": "bad", "unreachable": "bad", "down": "bad", "given up": "bad", "denied": "bad", "broken chain": "bad",
	// states of pods and containers
	"completed": "good", "containercreating": "busy", "podinitializing": "busy", "terminating": "busy",
	"oomkilled": "bad", "evicted": "bad", "containercannotrun": "bad", "deadlineexceeded": "bad", "nodelost": "bad", "invalidimagename": "bad",
}

// faulty are parts of the names of Kubernetes' states of a container that cannot run, such as
// ErrImagePull, CrashLoopBackOff or CreateContainerConfigError.
var faulty = []string{"err", "backoff", "unexpected"}

// Tone returns the color of a state: good, busy, warn, bad, or plain for all others.
func Tone(state any) string {
	name := strings.ToLower(fmt.Sprint(state))
	if tone, known := tones[name]; known {
		return tone
	}
	if slices.ContainsFunc(faulty, func(part string) bool { return strings.Contains(name, part) }) {
		return "bad"
	}
	return "plain"
}
