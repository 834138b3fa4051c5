package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// keep is how many results of one request stay that no process uses.
const keep = 2

// store is where the results of one request are, for all processes of this user: which
// sources there were last, and which program became of which sources. It is locked
// while it is open.
type store struct {
	dir     string // of all requests
	request string // this one's folder
	close   func() error
}

func openStore(ctx context.Context, request []string) (*store, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache: %w (set HOME or XDG_CACHE_HOME)", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append(request, runtime.Version(), runtime.GOARCH)))
	s := &store{dir: filepath.Join(cache, "pipeops-test", "programs")}
	s.request = filepath.Join(s.dir, "request-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(s.request, 0o755); err != nil {
		return nil, err
	}
	s.close, err = filelock.Wait(ctx, filepath.Join(s.request, "lock"), nil)
	return s, err
}

// sources returns those of the last build.
func (s *store) sources() (list sources, err error) {
	text, err := os.ReadFile(filepath.Join(s.request, "sources.json"))
	if err != nil {
		return list, err
	}
	return list, json.Unmarshal(text, &list)
}

// find returns the program that became of the sources as they are, or nothing.
func (s *store) find(list sources, name string) (file string, err error) {
	sum, err := list.sum()
	if err != nil {
		return "", nil //nolint:nilerr // a file has gone: ask Go again
	}
	result, err := os.ReadFile(s.result(sum))
	if err != nil {
		return "", nil //nolint:nilerr // not built yet
	}
	file, err = s.use(string(result), name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return file, errors.Join(err, s.touch(sum))
}

// touch says when a result was used last. A file system's own times of two writes may be equal.
func (s *store) touch(sum string) error {
	now := time.Now()
	return os.Chtimes(s.result(sum), now, now)
}

// making returns where a program is made. What a build that was killed left there goes.
func (s *store) making() (file string, remove func() error, err error) {
	remove = func() error {
		left, err := filepath.Glob(filepath.Join(s.request, "making-*"))
		for _, dir := range left {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	if err := remove(); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(s.request, "making-")
	return filepath.Join(dir, "program"), remove, err
}

func (s *store) result(sum string) string { return filepath.Join(s.request, "from-"+sum) }

func (s *store) folder(content string) string { return filepath.Join(s.dir, "sha256-"+content) }

// add takes in a program that was made of sources.
func (s *store) add(list sources, sum, made, name string) (file string, err error) {
	content, err := sumOf(made)
	if err != nil {
		return "", err
	}
	folder := s.folder(content)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(made, filepath.Join(folder, "program")); err != nil {
		return "", err
	}
	if file, err = s.use(content, name); err != nil {
		return "", err
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(filepath.Join(s.request, "sources.json"), text, 0o644), os.WriteFile(s.result(sum), []byte(content), 0o644))
	return file, errors.Join(err, s.touch(sum), s.prune())
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, file.Close())
}

// used are the locks of the programs that this process uses.
var used sync.Map

// use gives a program its name, and keeps it there while this process lives. One that is being
// removed does not exist.
func (s *store) use(content, name string) (string, error) {
	folder := s.folder(content)
	lock, err := filelock.Share(filepath.Join(folder, "lock"))
	if err != nil {
		return "", err
	}
	if lock == nil {
		return "", fs.ErrNotExist
	}
	file := filepath.Join(folder, name)
	if err := os.Link(filepath.Join(folder, "program"), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", errors.Join(err, lock.Close())
	}
	if _, known := used.LoadOrStore(content, lock); known {
		return file, lock.Close()
	}
	return file, nil
}

// prune removes the results that were used longest ago, with the programs that no
// process uses.
func (s *store) prune() error {
	results, err := filepath.Glob(s.result("*"))
	if err != nil {
		return err
	}
	last := map[string]time.Time{}
	for _, result := range results {
		info, err := os.Stat(result)
		if err != nil {
			return err
		}
		last[result] = info.ModTime()
	}
	slices.SortFunc(results, func(a, b string) int { return last[b].Compare(last[a]) })
	var kept []string
	for i, result := range results {
		content, err := os.ReadFile(result)
		if err != nil {
			return err
		}
		if i < keep || slices.Contains(kept, string(content)) {
			kept = append(kept, string(content))
			continue
		}
		if err := s.remove(result, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a result with its program, unless a process uses that.
func (s *store) remove(result, content string) error {
	folder := s.folder(content)
	lock, err := filelock.Try(filepath.Join(folder, "lock"))
	switch {
	case errors.Is(err, fs.ErrNotExist): // another request had the same
		return os.Remove(result)
	case err != nil || lock == nil:
		return err
	}
	return errors.Join(os.RemoveAll(folder), os.Remove(result), lock.Close())
}
