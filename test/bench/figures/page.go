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
	before, rest, _ := bytes.Cut(page, mark)
	old, after, ok := bytes.Cut(rest, []byte(end))
	if !ok || bytes.Contains(old, []byte("<!-- ")) || bytes.Contains(after, mark) {
		return nil, fmt.Errorf("docs/%s has not once, with %s after it: %s", s.part.Page, end, mark)
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
		if f := s.figure(d.ID); f == nil {
			b.WriteString(line(d.Title, "not noted", d.Bound.text(d.Unit), ""))
		} else { // with the title from the time of the run: the definition may have changed since
			b.WriteString(line(f.Title, f.text(), f.Bound.text(f.Unit), f.verdict("**broken**")))
		}
	}
	for _, t := range s.Tables {
		b.WriteString("\n" + line(t.Columns...) + "|" + strings.Repeat("---|", len(t.Columns)) + "\n")
		for _, r := range t.Rows {
			b.WriteString(line(r...))
		}
	}
	return b.String() + "\n"
}

// line returns a line of a table.
func line(cells ...string) string {
	text := "| " + strings.Join(cells, " | ") + " |\n"
	for strings.Contains(text, "|  |") {
		text = strings.ReplaceAll(text, "|  |", "| |")
	}
	return text
}

// origin describes what was measured, when and on what machine, and how many bounds hold.
func (s *Set) origin() (lines []string) {
	bounds, hold := 0, 0
	for i := range s.Figures {
		if s.Figures[i].Bound != nil {
			bounds++
		}
		if s.Figures[i].verdict("") != "" {
			hold++
		}
	}
	commit := fmt.Sprintf("commit: `%s`", s.Commit)
	if s.Commit == "" {
		commit = fmt.Sprintf("commit: the run did not note it; `%s` recorded these figures", s.Recorded)
	} else if s.Changed {
		commit += ", with changes that were not committed"
	}
	date, _, _ := strings.Cut("date: "+s.Date, "T")
	if s.Seconds > 0 {
		date += ", for " + (time.Duration(s.Seconds) * time.Second).String()
	}
	lines = []string{commit, date, "machine: " + s.Machine.String()}
	var sizes []string
	for _, name := range slices.Sorted(maps.Keys(s.Sizes)) {
		sizes = append(sizes, name+" "+s.Sizes[name])
	}
	if len(sizes) > 0 {
		lines = append(lines, "sizes: "+strings.Join(sizes, ", "))
	}
	file := "bench/" + s.part.Name + ".json"
	up := strings.Repeat("../", strings.Count(s.part.Page, "/"))
	return append(lines, fmt.Sprintf("bounds that hold: %d of %d", hold, bounds), fmt.Sprintf("made from [%s](%s%s)", file, up, file))
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
