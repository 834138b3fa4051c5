package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ErrorEvent is the event with the reason why a stream breaks off.
const ErrorEvent = "error"

const (
	maxEventLine = 1 << 20 // bytes of a line of a stream
)

// errEndless reports a line of a stream that is too long.
var errEndless = fmt.Errorf("a line of the event stream has more than %d bytes", maxEventLine)

// WriteEvent writes one event (HTML standard, section 9.2). JSON has no line
// breaks, so its data is one line.
func WriteEvent(w io.Writer, name, id string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("event: " + name + "\ndata: " + string(raw) + "\n\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// ReadEvents calls emit for each event of a stream until it ends. It returns the reason with which
// a stream breaks off.
func ReadEvents(r io.Reader, emit func(runnerapi.AppEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxEventLine)
	var name, data string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "" && data != "":
			if err := oneEvent(name, data, emit); err != nil {
				return err
			}
			name, data = "", ""
		case field == "event":
			name = value
		case field == "data":
			data = value
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &StoppedError{Reason: errEndless}
	}
	return lines.Err()
}

func oneEvent(name, data string, emit func(runnerapi.AppEvent) error) error {
	if name == ErrorEvent {
		e := &runnerapi.Error{}
		if err := AnswerLimits.JSON([]byte(data), e); err != nil || e.Status == 0 {
			return problem.Errorf(problem.Unavailable, "try again", "the event stream ended without a reason")
		}
		return e
	}
	var event runnerapi.AppEvent
	if err := AnswerLimits.JSON([]byte(data), &event); err != nil {
		return &StoppedError{Reason: fmt.Errorf("an event makes no sense: %w", err)}
	}
	if err := emit(event); err != nil {
		return &StoppedError{Reason: err}
	}
	return nil
}
