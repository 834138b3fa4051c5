package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// script runs steps one after another and remembers what each showed.
type script struct {
	out  io.Writer
	rows []row
}

type row struct {
	title, seen string
	took        time.Duration
	failed      bool
}

// step runs one step: its title before, what was seen after.
func (s *script) step(title string, do func() (seen string, err error)) error {
	s.say("\n== %d. %s", len(s.rows)+1, title)
	start := time.Now()
	seen, err := do()
	r := row{title: title, seen: seen, took: time.Since(start), failed: err != nil}
	if err != nil {
		r.seen = strings.SplitN(err.Error(), "\n", 2)[0]
	}
	s.rows = append(s.rows, r)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	s.say("   %s  (%s)", strings.ReplaceAll(seen, "\n", "\n   "), round(r.took))
	return nil
}

func (s *script) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

// summary prints the table at the end.
func (s *script) summary() {
	s.say("")
	titles := 0
	for _, r := range s.rows {
		titles = max(titles, len(r.title))
	}
	seen := max(width()-titles-len("10.   9.99s  "), 40)
	t := tabwriter.NewWriter(s.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "STEP\tWHAT WAS SEEN\tTOOK")
	for i, r := range s.rows {
		mark := ""
		if r.failed {
			mark = "FAILED: "
		}
		_, _ = fmt.Fprintf(t, "%d. %s\t%s\t%s\n", i+1, r.title, shorten(mark+r.seen, seen), round(r.took))
	}
	_ = t.Flush()
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}

// shorten makes one line of a text, of as many columns at most.
func shorten(text string, columns int) string {
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > columns {
		return string(runes[:columns-1]) + "…"
	}
	return text
}
