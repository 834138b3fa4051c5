package main

import (
	"context"
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
	"time"
)

// marked is a job of a part, with the file that notes that it has passed.
type marked struct {
	*job
	mark string
}

// unproven returns the jobs that have not passed on this machine with the same inputs, and reports
// the others. Go's test cache cannot do that for tests that run programs or read files of other
// folders.
func (m *module) unproven(out io.Writer, p part, jobs []job, files []string) (left []marked) {
	for i := range jobs {
		jobs[i].part = p.name
		mark, err := m.mark(p, jobs[i], files)
		if err == nil {
			if when, err := os.ReadFile(mark); err == nil {
				fmt.Fprintf(out, "%-10s passed on this machine with the same inputs at %s: %s\n", p.name, when, jobs[i].name)
				continue
			}
		}
		left = append(left, marked{&jobs[i], mark})
	}
	return left
}

// proven returns the marks of the jobs that passed whole: what was skipped against expectation, and
// what matched no test, has not passed.
func proven(r *report, jobs []marked) (kept []string) {
	for _, j := range jobs {
		none := j.selects() && r.ran[j.job] == 0
		if j.mark != "" && !none && !r.hasFailed(j.job) && !r.unexpected(j.job) {
			kept = append(kept, j.mark)
		}
	}
	return kept
}

// keep notes that jobs have passed.
func keep(marks []string) error {
	now := []byte(time.Now().UTC().Format(time.RFC3339))
	for _, mark := range marks {
		if err := errors.Join(os.MkdirAll(filepath.Dir(mark), 0o700), os.WriteFile(mark, now, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// mark returns the file that notes that a job has passed. Its name is a hash of the command and of
// the content of all inputs. Go's version and the user are part of it.
func (m *module) mark(p part, j job, files []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash, in := sha256.New(), m.inputs(p, j)
	// Root runs tests that others skip.
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH, os.Geteuid(), j.flags(), j.env, j.race, j.packages)
	for _, file := range files {
		if !in.has(file) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(m.root, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted and not committed
			return "", err
		}
		fmt.Fprintf(hash, "%s %x\n", file, sha256.Sum256(content))
	}
	return filepath.Join(cache, "pipeops-test", "passed", hex.EncodeToString(hash.Sum(nil))), nil
}

// trackedFiles returns the files of the repository that git knows, and new ones that it does not
// ignore.
func trackedFiles(ctx context.Context) ([]string, error) {
	list, err := git(ctx, "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
	return strings.Split(list, "\n"), err
}
