package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
)

// Shell returns a document's blocks of shell, those that begin with ```sh: tests run them as they
// are written. The document is named from the repository's top.
func Shell(doc string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), doc))
	if err != nil {
		return nil, err
	}
	blocks := shell(string(text))
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s has no block of shell", doc)
	}
	return blocks, nil
}

// shell returns the blocks of shell in a text.
func shell(text string) (blocks []string) {
	for i, part := range strings.Split("\n"+text, "\n```") {
		if lang, block, _ := strings.Cut(part, "\n"); i%2 == 1 && lang == "sh" {
			blocks = append(blocks, block+"\n")
		}
	}
	return blocks
}

// CommandLine returns the examples in the reference of pipeops-runner of one command, or of all if
// it is empty.
func CommandLine(command string) ([]string, error) {
	text, err := clidoc.Read(filepath.Join(Root(), "docs/reference/runner-cli.md"))
	if err != nil {
		return nil, err
	}
	blocks := shell(text)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(strings.Join(blocks, "")), "\n") {
		if command == "" || strings.HasPrefix(line, "pipeops-runner "+command+" ") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("the reference of pipeops-runner has no example of %q", command)
	}
	return lines, nil
}

// Named returns a document's blocks of a language, by the name after that, as in "```sh builder".
func Named(doc, language string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), doc))
	if err != nil {
		return nil, err
	}
	blocks := map[string]string{}
	for _, part := range strings.Split("\n"+string(text), "\n```"+language+" ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		block, _, ended := strings.Cut(rest, "```")
		if blocks[name] != "" || !ended {
			return nil, fmt.Errorf("%s has the block %q twice, or without an end", doc, name)
		}
		blocks[name] = block
	}
	return blocks, nil
}

// WithBuilder returns the commands of a document that need a builder: those of its block that
// begins with "```sh builder". internal/build runs it.
func WithBuilder(doc string) ([]string, error) {
	blocks, err := Named(doc, "sh")
	block := strings.TrimSpace(blocks["builder"])
	if err == nil && block == "" {
		err = fmt.Errorf("%s has no commands for where a builder is", doc)
	}
	return strings.Split(strings.ReplaceAll(block, " \\\n  ", " "), "\n"), err
}

// ShellWith returns the one block of a document that contains a text.
func ShellWith(doc, has string) (string, error) {
	blocks, err := Shell(doc)
	if err != nil {
		return "", err
	}
	for _, b := range blocks {
		if strings.Contains(b, has) {
			return b, nil
		}
	}
	return "", fmt.Errorf("%s has no block of shell with %q", doc, has)
}

// Monitored returns the examples of the command line that need the components for monitoring.
func Monitored() ([]string, error) {
	lines, err := CommandLine("")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lines, func(line string) bool { return !monitored.MatchString(line) }), nil
}

var monitored = regexp.MustCompile(`^pipeops-runner (alerts |cost |metrics .*--since )`)
