package figures

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	begin = "<!-- figures: %s (made by %s; do not edit) -->\n"
	end   = "<!-- end -->\n"
	// width is where text breaks; tables do not.
	width = 100
)

// Put puts a set's tables between their marks on a page.
func (s *Set) Put(page []byte) ([]byte, error) {
	mark := fmt.Appendf(nil, begin, s.Name, s.part.Command)
	if n := bytes.Count(page, mark); n != 1 {
		return nil, fmt.Errorf("docs/%s has %d times, not once: %s", s.part.Page, n, mark)
	}
	before, rest, _ := bytes.Cut(page, mark)
	old, after, ok := bytes.Cut(rest, []byte(end))
	if !ok || bytes.Contains(old, []byte("<!-- ")) {
		return nil, fmt.Errorf("docs/%s lacks %s after %s", s.part.Page, end, mark)
	}
	return bytes.Join([][]byte{before, mark, []byte(s.block()), []byte(end), after}, nil), nil
}

// block returns a set as Markdown.
func (s *Set) block() string {
	var b strings.Builder
	b.WriteString("\n")
	for _, line := range s.origin() {
		b.WriteString(folded("- " + line))
	}
	b.WriteString("\n| figure | measured | bound | |\n|---|---|---|---|\n")
	for _, d := range s.part.Definitions {
		b.WriteString(s.row(d))
	}
	for _, t := range s.Tables {
		b.WriteString("\n" + line(t.Columns...) + "|" + strings.Repeat("---|", len(t.Columns)) + "\n")
		for _, r := range t.Rows {
			b.WriteString(line(r...))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// row uses the title from the time of the run, because the definition may have changed since.
func (s *Set) row(d Definition) string {
	f := s.figure(d.ID)
	if f == nil {
		return line(d.Title, "not noted", d.Bound.text(d.Unit), "")
	}
	verdict := f.verdict()
	if verdict == "broken" {
		verdict = "**broken**"
	}
	return line(f.Title, f.text(), f.Bound.text(f.Unit), verdict)
}

// line returns a line of a table.
func line(cells ...string) string {
	var b strings.Builder
	b.WriteString("|")
	for _, c := range cells {
		if c != "" {
			b.WriteString(" " + c)
		}
		b.WriteString(" |")
	}
	return b.String() + "\n"
}

// origin describes what was measured, when and on what machine, and how many bounds hold.
func (s *Set) origin() []string {
	bounds, hold := 0, 0
	for i := range s.Figures {
		if f := &s.Figures[i]; f.Bound != nil {
			bounds++
			if f.verdict() == "holds" {
				hold++
			}
		}
	}
	lines := []string{s.ofCommit(), "date: " + s.date(), "machine: " + s.Machine.String()}
	if len(s.Sizes) > 0 {
		var sizes []string
		for _, name := range slices.Sorted(maps.Keys(s.Sizes)) {
			sizes = append(sizes, name+" "+s.Sizes[name])
		}
		lines = append(lines, "sizes: "+strings.Join(sizes, ", "))
	}
	return append(lines, fmt.Sprintf("bounds that hold: %d of %d", hold, bounds), fmt.Sprintf("made from [%s](%s)", s.part.JSON(), s.part.link()))
}

func (s *Set) ofCommit() string {
	switch {
	case s.Commit == "":
		return fmt.Sprintf("commit: the run did not note it; `%s` recorded these figures", s.Recorded)
	case s.Changed:
		return fmt.Sprintf("commit: `%s`, with changes that were not committed", s.Commit)
	}
	return fmt.Sprintf("commit: `%s`", s.Commit)
}

func (s *Set) date() string {
	day, _, _ := strings.Cut(s.Date, "T")
	if s.Seconds > 0 {
		day += ", for " + (time.Duration(s.Seconds) * time.Second).String()
	}
	return day
}

// folded breaks a line of a list.
func folded(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i > 0 && column+1+len(word) > width:
			b.WriteString("\n  ")
			column = 2
		case i > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
