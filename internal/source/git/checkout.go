package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// CheckoutLimits fit into a pod of 1 GiB that does nothing else. One file may be as large as all
// together: what a build needs must not be left out.
var CheckoutLimits = Limits{
	Advertised: 16 << 20, Pack: 256 << 20, Unpacked: 384 << 20, Objects: 400_000, File: 256 << 20, Time: 10 * time.Minute,
}

// maxCheckedOut bounds the number of files: one blob may be many.
const maxCheckedOut = 200_000

// Checkout writes the files of a folder of one commit into dir, which must be an empty directory.
// It writes symbolic links and executable files, but no submodules, and never writes outside of
// dir.
func Checkout(ctx context.Context, r Remote, ref runnerapi.GitRef, folder, dir string, l Limits) (commit string, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	at, err := locate(ctx, r, ref, l)
	if err != nil {
		return "", err
	}
	defer at.close()
	pack, err := download(ctx, at, smallFiles(l), l)
	if err != nil {
		return "", err
	}
	return at.checkOut(pack, folder, dir, l)
}

func (at *located) checkOut(pack []byte, folder, dir string, l Limits) (string, error) {
	store, commit, err := at.open(pack, l)
	if err != nil {
		return "", err
	}
	tree, err := folderOf(store, commit, folder)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("open the place for the files: %w", err)
	}
	defer func() { _ = root.Close() }()
	w := &writer{store: store, root: root, left: l.Unpacked}
	return commit.Hash.String(), w.tree(tree, "", 0)
}

func folderOf(store *memory.Storage, commit *object.Commit, folder string) (*object.Tree, error) {
	tree, err := object.GetTree(store, commit.TreeHash)
	if err != nil {
		return nil, broken(err)
	}
	if folder = strings.Trim(path.Clean("/"+folder), "/"); folder == "" {
		return tree, nil
	}
	if tree, err = tree.Tree(folder); err != nil {
		return nil, failed(PathMissing, "correct path: it is a folder, seen from the root of the repository", "commit %.12s has no folder %s", commit.Hash, clip(folder))
	}
	return tree, nil
}

// writer writes files within limits.
type writer struct {
	store *memory.Storage
	root  *os.Root
	left  int64
	files int
}

func (w *writer) tree(t *object.Tree, at string, depth int) error {
	if depth > maxDepth {
		return tooLarge("has folders in folders, more than %d deep", maxDepth)
	}
	for _, e := range t.Entries {
		if !validName(e.Name) || strings.EqualFold(e.Name, ".git") {
			return failed(NotGit, "look at the repository with `git fsck`", "%s has an entry of the name %q", clip(at), clip(e.Name))
		}
		if w.files++; w.files > maxCheckedOut {
			return tooLarge("has more than %d files there", maxCheckedOut)
		}
		if err := w.entry(e, path.Join(at, e.Name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) entry(e object.TreeEntry, at string, depth int) error {
	switch e.Mode {
	case filemode.Dir:
		t, err := object.GetTree(w.store, e.Hash)
		if err != nil {
			return broken(err)
		}
		if err := w.root.Mkdir(filepath.FromSlash(at), 0o755); err != nil { // readable for the builder's user
			return fmt.Errorf("write folder: %w", err)
		}
		return w.tree(t, at, depth+1)
	case filemode.Executable:
		return w.file(e.Hash, at, 0o755)
	case filemode.Regular, filemode.Deprecated:
		return w.file(e.Hash, at, 0o644)
	case filemode.Symlink:
		return w.link(e.Hash, at)
	}
	return nil // a submodule
}

// file makes a new file, so that no link that the repository has is ever followed.
func (w *writer) file(hash plumbing.Hash, at string, mode os.FileMode) (err error) {
	r, err := w.open(hash, at)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	f, err := w.root.OpenFile(filepath.FromSlash(at), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

func (w *writer) link(hash plumbing.Hash, at string) error {
	r, err := w.open(hash, at)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	target, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return broken(err)
	}
	if err := w.root.Symlink(string(target), filepath.FromSlash(at)); err != nil {
		return fmt.Errorf("write link: %w", err)
	}
	return nil
}

func (w *writer) open(hash plumbing.Hash, at string) (io.ReadCloser, error) {
	blob, err := object.GetBlob(w.store, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, tooLarge("has a file that is too large: %s", clip(at))
	}
	if err != nil {
		return nil, broken(err)
	}
	if w.left -= blob.Size; w.left < 0 {
		return nil, tooLarge("has more than is taken, with what is there several times")
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, broken(err)
	}
	return r, nil
}
