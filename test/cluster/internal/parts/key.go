package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// hashFiles makes a key of the files that a build depends on: those named, and
// all in the directories named but for tests and documentation. Directories
// within those that are modules of their own do not count.
func hashFiles(root string, names []string, salt ...string) (string, error) {
	hash := sha256.New()
	for _, text := range salt {
		fmt.Fprintf(hash, "%d:%s\n", len(text), text)
	}
	for _, name := range names {
		if err := hashTree(hash, root, filepath.Join(root, name)); err != nil {
			return "", fmt.Errorf("hash %s: %w", name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func hashTree(w io.Writer, root, path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return hashFile(w, root, path)
	}
	entries, err := inputs.List(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		below := filepath.Join(path, entry)
		if isModule(below) || strings.HasSuffix(entry, ".md") {
			continue
		}
		if err := hashTree(w, root, below); err != nil {
			return err
		}
	}
	return nil
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func hashFile(w io.Writer, root, path string) error {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	content, err := inputs.Read(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %x\n", name, sha256.Sum256(content))
	return err
}
