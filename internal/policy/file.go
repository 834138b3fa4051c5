package policy

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify" // reports a change at once, without a timer that wakes an idle agent

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// ReadFile reads a policy from a file. A missing file does not mean the default policy, because the
// operator named it.
func ReadFile(file string) (Document, error) {
	text, err := boundedfile.Head(file, MaxSize+1)
	if err != nil {
		return Document{}, unreadable(err)
	}
	return Parse(text)
}

func unreadable(err error) error {
	return problem.Errorf(problem.Invalid, "make the file, readable for the agent's user, or leave PIPEOPS_POLICY_FILE out", "the policy cannot be read: %v", err)
}

// WatchFile calls set with the policy in a file, and with each change of it,
// until ctx ends. It watches the directory: editors put a new file in place of
// the old one.
func WatchFile(ctx context.Context, file string, set func(Document, error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", file, err)
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(filepath.Dir(file)); err != nil {
		return fmt.Errorf("PIPEOPS_POLICY_FILE: watch %s: %w (fix: make the directory)", filepath.Dir(file), err)
	}
	set(ReadFile(file))
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			// Events may be lost: look.
			set(ReadFile(file))
			if err == nil {
				return fmt.Errorf("watch %s: the watch ended", file)
			}
		case <-w.Events:
			set(ReadFile(file))
		}
	}
}
