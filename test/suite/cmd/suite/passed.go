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
	"slices"
	"strings"
	"time"
)

// runPart runs jobs of a part, except those that passed on this machine with the same inputs.
// Go's test cache cannot do that for tests that run programs or read files of other folders.
func runPart(ctx context.Context, out io.Writer, m *module, p part, jobs []job) error {
	files, err := trackedFiles(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n== part %s: %s (about %s)\n", p.name, p.what, p.estimate)
	var marks []string // of jobs, in their order
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		mark, err := m.mark(p, j, files)
		if err != nil {
			return false
		}
		if when, err := os.ReadFile(mark); err == nil {
			fmt.Fprintf(out, "passed on this machine with the same inputs at %s: %s\n", when, j.name)
			return true
		}
		marks = append(marks, mark)
		return false
	})
	if len(jobs) == 0 {
		return nil
	}
	r, err := followJobs(ctx, out, p.name, jobs)
	if err != nil {
		return err
	}
	return keep(proven(r, jobs, marks))
}

// proven returns the marks of the jobs that skipped nothing but what is expected: what was skipped
// has not passed.
func proven(r *report, jobs []job, marks []string) (kept []string) {
	for i := range jobs {
		if !r.unexpected(&jobs[i]) {
			kept = append(kept, marks[i])
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

// mark is the file that notes that a job has passed. Its name is a hash of the command and of the
// content of all inputs. Go's version and the user are part of it.
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

// trackedFiles are the files of the repository that git knows, and new ones that it does not ignore.
func trackedFiles(ctx context.Context) ([]string, error) {
	list, err := git(ctx, "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
	return strings.Split(list, "\n"), err
}
