package cli

import (
	"io"
	"strings"
)

// inMarkdown keeps a cell's text from ending the cell, or from being markup (GitHub Flavored
// Markdown, section 4.10).
var inMarkdown = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "&#64;", "\n", " ",
)

// writeMarkdown prints the table as one of GitHub's and GitLab's Markdown, for the summary of a
// job.
func (g *grid) writeMarkdown(w io.Writer) error {
	width := 0
	for _, l := range g.lines {
		width = max(width, len(l.cells))
	}
	var text strings.Builder
	for i, l := range g.lines {
		if l.cells == nil {
			text.WriteString("\n" + inMarkdown.Replace(strings.TrimSpace(l.text)) + "\n\n")
			continue
		}
		text.WriteString("|")
		for column := range width {
			cell := ""
			if column < len(l.cells) {
				cell = inMarkdown.Replace(l.cells[column])
			}
			text.WriteString(" " + cell + " |")
		}
		text.WriteString("\n")
		if i == 0 {
			text.WriteString("|" + strings.Repeat(" --- |", width) + "\n")
		}
	}
	return Raw(w, []byte(text.String()))
}
