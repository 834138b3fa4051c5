package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Shell are a document's blocks of shell, those that begin with ```sh: tests
// run them as they are written. The document is named from the repository's top.
func Shell(doc string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), doc))
	if err != nil {
		return nil, err
	}
	var blocks []string
	for i, part := range strings.Split("\n"+string(text), "\n```") {
		if lang, block, _ := strings.Cut(part, "\n"); i%2 == 1 && lang == "sh" {
			blocks = append(blocks, block+"\n")
		}
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s has no block of shell", doc)
	}
	return blocks, nil
}

// ShellWith is the one block of a document that has a text in it.
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
