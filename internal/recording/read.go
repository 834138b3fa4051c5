package recording

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Info describes a stored recording.
type Info struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Runner    string    `json:"runner"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	RequestID string    `json:"requestId"`
	Bytes     int64     `json:"bytes"`
}

// Infos returns the newest recordings, oldest first. Of one whose beginning is damaged it returns
// the ID and the size.
func Infos(ctx context.Context, s Store, limit int) ([]Info, error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("recordings: %w", err)
	}
	infos := []Info{}
	for _, e := range all[max(0, len(all)-limit):] {
		text, err := s.Get(ctx, e.ID, 0)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", e.ID, err)
		}
		h, _ := decodeHeader(text)
		infos = append(infos, Info{
			ID: e.ID, Time: begun(e.ID), Runner: h.Session.Runner, Namespace: h.Session.Namespace, Name: h.Session.Name,
			RequestID: h.Session.RequestID, Bytes: e.Bytes,
		})
	}
	return infos, nil
}

// Write writes a recording.
func Write(ctx context.Context, s Store, id string, to io.Writer) error {
	e, err := find(ctx, s, id)
	if err != nil {
		return err
	}
	missing := 0
	for part := range e.Last + 1 {
		text, err := s.Get(ctx, id, part)
		if err != nil {
			return fmt.Errorf("recording %s: %w", id, err)
		}
		if text == nil {
			missing++
		}
		if _, err := to.Write(text); err != nil {
			return err
		}
	}
	if missing > 0 {
		return fmt.Errorf("recording %s is not whole: %d of its %d parts are missing in %s", id, missing, e.Last+1, s)
	}
	return nil
}

// Delete removes a recording.
func Delete(ctx context.Context, s Store, id string) error {
	if _, err := find(ctx, s, id); err != nil {
		return err
	}
	if err := s.Delete(ctx, id); err != nil {
		return fmt.Errorf("recording %s: %w", id, err)
	}
	return nil
}

func find(ctx context.Context, s Store, id string) (Entry, error) {
	all, err := s.List(ctx)
	if err != nil {
		return Entry{}, fmt.Errorf("recordings: %w", err)
	}
	for _, e := range all {
		if e.ID == id {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("there is no recording %.64q in %s (fix: use an ID that `pipeops-agent recording list` lists)", id, s)
}
