package apppage

import (
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Source is the Git source that an App comes from.
type Source struct{ runnerapi.Source }

// NewSource returns what the page shows of a source; nil for none.
func NewSource(s *runnerapi.Source) *Source {
	if s == nil {
		return nil
	}
	return &Source{*s}
}

// Applied returns when the commit was applied; the zero time if none was.
func (s Source) Applied() time.Time {
	at, err := time.Parse(time.RFC3339, s.Status.AppliedAt)
	if err != nil {
		return time.Time{}
	}
	return at
}

// Commit returns the commit that is applied, as git shortens it; empty for none.
func (s Source) Commit() string { return short(s.Status.Commit) }

// Previews are those of open requests, the newest first.
func (s Source) Previews() []runnerapi.SourcePreview {
	if s.Status.Previews == nil {
		return nil
	}
	list := slices.Clone(s.Status.Previews.Items)
	slices.SortFunc(list, func(a, b runnerapi.SourcePreview) int { return int(b.Number - a.Number) })
	return list
}

func short(commit string) string { return commit[:min(len(commit), 12)] }
