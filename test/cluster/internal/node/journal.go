package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// journal appends events to a file, one JSON object a line.
type journal struct{ file *os.File }

func openJournal(dir string) (*journal, error) {
	file, err := os.OpenFile(filepath.Join(dir, eventsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{file: file}, nil
}

func (j *journal) add(kind EventKind, name, detail string) error {
	line, err := json.Marshal(Event{At: time.Now(), Kind: kind, Name: name, Detail: detail})
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// Events reads the journal in a cluster's directory. A line that is still being
// written is left for the next time.
func Events(dir string) ([]Event, error) {
	content, err := os.ReadFile(filepath.Join(dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	var events []Event
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var event Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		events = append(events, event)
	}
	return events, nil
}
