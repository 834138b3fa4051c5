package catalog

import (
	"fmt"
	"path"
	"strings"
)

const intro = `# Error codes

<!-- Made from internal/problem/catalog: go generate ./internal/problem/catalog -->

An error with a fix has a code. The commands and the installer print it as their last line. To see
what a code means, name it:

` + "```" + `
pipeops-runner explain PO-3001
pipeops-runner explain policy_denied
` + "```" + `

` + "`pipeops-controlplane explain` and `pipeops-agent explain`" + ` do the same. Without a code, each lists
all codes. A code never changes its meaning, and a code that is gone is not used again. Over HTTP
and in an App's status an error has its name, which is as stable as the code.

The first digit is the area:

| codes | area |
|---|---|
`

// width is that of a line in a page.
const width = 100

// Markdown returns the page about all entries.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, area := range Areas() {
		anchor := strings.NewReplacer(" ", "-", "'", "").Replace(strings.ToLower(area.Title))
		fmt.Fprintf(&b, "| %sxxx | [%s](#%s) |\n", area.Prefix, area.Title, anchor)
	}
	for _, area := range Areas() {
		fmt.Fprintf(&b, "\n## %s\n", area.Title)
		for _, e := range area.Entries {
			b.WriteString("\n" + e.markdown())
		}
	}
	return b.String()
}

func (e Entry) markdown() string {
	page, _, _ := strings.Cut(path.Base(e.Page), "#")
	link := "../" + strings.TrimPrefix(e.Page, "docs/")
	if here := "../reference/"; strings.HasPrefix(link, here) {
		link = strings.TrimPrefix(link, here)
	}
	return fmt.Sprintf("### %s\n\n%s\n\n%s\n- More: [%s](%s)\n", e.Code,
		wrapped(fmt.Sprintf("**%s** (`%s`). %s", e.Title, e.Name, e.Meaning), ""),
		wrapped("- Fix: "+e.Fix, "  "), page, link)
}

// wrapped breaks a text into lines. Code between backticks stays in one.
func wrapped(text, indent string) string {
	var b strings.Builder
	column := 0
	for _, word := range words(text) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent) + n
		default:
			b.WriteString(" ")
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

func words(text string) (all []string) {
	open := false
	for word := range strings.FieldsSeq(text) {
		if open {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		if strings.Count(word, "`")%2 == 1 {
			open = !open
		}
	}
	return all
}
