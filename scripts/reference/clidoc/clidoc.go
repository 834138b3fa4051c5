// Package clidoc makes the reference of a command line from its commands: a page about the program,
// and one for each group of commands in its help. Tests compare the committed pages with it.
package clidoc

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Reference is the reference of a program. Its first page is at File; the pages of groups are in
// the folder of that name without ".md".
type Reference struct {
	File string // from the test's folder
	Made string // the command that makes it again
	// Run marks the examples as shell, which tests run.
	Run bool
}

// Folder returns the folder of the groups' pages.
func (r Reference) Folder() string { return strings.TrimSuffix(r.File, ".md") }

// Walk visits all commands but hidden ones and those that cobra adds of its own.
func Walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	if !isShown(cmd) {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		Walk(sub, visit)
	}
}

func isShown(cmd *cobra.Command) bool {
	return !cmd.Hidden && cmd.Name() != "completion" && cmd.Name() != "help"
}

// group is a group of commands in a program's help.
type group struct {
	title    string
	file     string
	commands []*cobra.Command
}

// groups returns the groups of a program in the order of its help. Commands without one are in the
// last.
func (r Reference) groups(root *cobra.Command) (all []group) {
	byTitle := map[string][]*cobra.Command{}
	for _, cmd := range root.Commands() {
		if isShown(cmd) {
			title := strings.TrimSuffix(cmp.Or(cmd.GroupID, "Further commands"), ":")
			byTitle[title] = append(byTitle[title], cmd)
		}
	}
	titles := make([]string, 0, len(root.Groups()))
	for _, g := range root.Groups() {
		titles = append(titles, strings.TrimSuffix(g.ID, ":"))
	}
	for _, title := range append(titles, "Further commands") {
		if len(byTitle[title]) > 0 {
			file := strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(title), ",", ""), " ", "-") + ".md"
			all = append(all, group{title, filepath.Join(r.Folder(), file), byTitle[title]})
		}
	}
	return all
}

// Pages returns the text of each file.
func (r Reference) Pages(root *cobra.Command) map[string]string {
	groups := r.groups(root)
	pages := map[string]string{r.File: r.first(root, groups)}
	for _, g := range groups {
		pages[g.file] = r.page(root, g)
	}
	return pages
}

// first returns the page about the program, with a table of all commands.
func (r Reference) first(root *cobra.Command, groups []group) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n<!-- Made from the commands: %s -->\n\n", root.Name(), r.Made)
	r.about(&b, root)
	b.Truncate(len(bytes.TrimRight(b.Bytes(), "\n")) + 1)
	for _, g := range groups {
		page := path.Join(path.Base(filepath.ToSlash(r.Folder())), filepath.Base(g.file))
		fmt.Fprintf(&b, "\n## %s\n\n| command | what it does |\n|---|---|\n", g.title)
		for _, cmd := range g.commands {
			fmt.Fprintf(&b, "| [`%s`](%s#%s) | %s |\n", cmd.Name(), page, strings.ReplaceAll(cmd.CommandPath(), " ", "-"), strings.ReplaceAll(cmd.Short, "|", `\|`))
		}
	}
	fmt.Fprintf(&b, "\n`%s completion bash|zsh|fish|powershell` prints a completion script.\n", root.Name())
	return b.String()
}

// page returns the page of a group.
func (r Reference) page(root *cobra.Command, g group) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s: %s\n\n<!-- Made from the commands: %s -->\n\n", root.Name(), g.title, r.Made)
	fmt.Fprintf(&b, "What all commands have in common is in [%s](../%[1]s).\n", filepath.Base(r.File))
	for _, top := range g.commands {
		Walk(top, func(cmd *cobra.Command) {
			fmt.Fprintf(&b, "\n%s %s\n\n", strings.Repeat("#", min(1+strings.Count(cmd.CommandPath(), " "), 3)), cmd.CommandPath())
			r.about(&b, cmd)
		})
	}
	return b.String()
}

// Read returns a whole reference: its first page, and then the sections of all commands, sorted by
// the command. Headings have the form "# PROGRAM COMMAND", with more than one #.
func Read(file string) (string, error) {
	first, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	pages, err := filepath.Glob(filepath.Join(strings.TrimSuffix(file, ".md"), "*.md"))
	if err != nil || len(pages) == 0 {
		return "", fmt.Errorf("%s has no pages of commands: %w", file, err)
	}
	sections := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return "", err
		}
		starts := append(heading.FindAllStringIndex(string(text), -1), []int{len(text), 0})
		for i, at := range starts[:len(starts)-1] {
			sections[strings.TrimLeft(string(text[at[0]:at[1]]), "\n#")] = string(text[at[0]:starts[i+1][0]])
		}
	}
	all := string(first)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		all += sections[name]
	}
	return all, nil
}

// heading is that of a command.
var heading = regexp.MustCompile(`(?m)^##+ pipeops-\w+ .*$`)

// columns are lines in which spaces matter, with the empty lines around them. Lists are none.
var columns = regexp.MustCompile(`(?m)\n*(?:^ {2,}[^ -].*(?:\n|$))+\n?`)

// fenced puts fences around columns.
func fenced(text string) string {
	text = columns.ReplaceAllStringFunc(text, func(lines string) string {
		return "\n\n```\n" + strings.Trim(lines, "\n") + "\n```\n\n"
	})
	return strings.TrimSpace(text)
}

// about writes what the help of a command has.
func (r Reference) about(b *bytes.Buffer, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(fenced(text) + "\n\n")
	if cmd.Runnable() && !cmd.HasSubCommands() {
		fmt.Fprintf(b, "```\n%s\n```\n\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		language := ""
		if r.Run {
			language = "sh"
		}
		fmt.Fprintf(b, "Example:\n\n```%s\n%s\n```\n\n", language, strings.TrimPrefix(strings.ReplaceAll(cmd.Example, "\n  ", "\n"), "  "))
	}
	if flags := cmd.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "Flags:\n\n```\n%s```\n", flags)
	}
}
