package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const modulePath = "github.com/pipeops/pipeops-vm-agent"

// hashFiles makes a key of the files that a build depends on: those named, and
// all in the directories named but for tests and documentation. Directories
// within those that are modules of their own do not count.
func hashFiles(root string, inputs []string, salt ...string) (string, error) {
	hash := sha256.New()
	for _, text := range salt {
		fmt.Fprintf(hash, "%d:%s\n", len(text), text)
	}
	for _, input := range inputs {
		err := filepath.WalkDir(filepath.Join(root, input), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				return skipModule(root, input, path)
			}
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
				return nil
			}
			return hashFile(hash, root, path)
		})
		if err != nil {
			return "", fmt.Errorf("hash %s: %w", input, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func skipModule(root, input, dir string) error {
	if dir == filepath.Join(root, input) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func hashFile(w io.Writer, root, path string) error {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %x\n", name, sha256.Sum256(content))
	return err
}

// FindSource finds the repository: above this source file, or above the current
// directory where the program was built with -trimpath.
func FindSource() (string, error) {
	var starts []string
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	for _, dir := range starts {
		for {
			content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && strings.HasPrefix(string(content), "module "+modulePath+"\n") {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", errors.New("the sources of " + modulePath + " are needed to build the test cluster: run this within the repository")
}
