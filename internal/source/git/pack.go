package git

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

// Files are a commit's files by their path from the root of the repository. A symbolic link within
// the repository stands for what it leads to. Other links and submodules are not among them.
type Files map[string][]byte

// Size returns the bytes of all files.
func (f Files) Size() (bytes int64) {
	for _, content := range f {
		bytes += int64(len(content))
	}
	return bytes
}

const (
	maxFiles = 10_000
	maxDepth = 64
)

// unpack takes the files of the commit, or of the tag that leads to it, out of a pack.
func (at *located) unpack(pack []byte, folder string, l Limits) (string, Files, error) {
	store, commit, err := at.open(pack, l)
	if err != nil {
		return "", nil, err
	}
	files, err := collect(store, commit, folder, l)
	return commit.Hash.String(), files, err
}

// open reads the objects of a pack, and returns the commit, whose signature it has checked.
func (at *located) open(pack []byte, l Limits) (*memory.Storage, *object.Commit, error) {
	if err := weigh(pack, l); err != nil {
		return nil, nil, err
	}
	store := memory.NewStorage()
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(bytes.NewReader(pack)), store)
	if err == nil {
		_, err = parser.Parse()
	}
	if err != nil {
		return nil, nil, broken(err)
	}
	commit, err := commitOf(store, at.hash)
	if err == nil {
		err = at.verify(store, commit)
	}
	return store, commit, err
}

func broken(err error) error {
	return failed(NotGit, "it is tried again; if it stays, look at the server with `git fsck`", "what the server sent is not a pack that can be read: %s", clip(err.Error()))
}

// weigh reads a pack's headers before anything is unpacked: a few bytes can announce gigabytes, as
// compressed data or as copies within a delta.
func weigh(pack []byte, l Limits) error {
	scanner := packfile.NewScanner(bytes.NewReader(pack))
	_, count, err := scanner.Header()
	if err != nil {
		return broken(err)
	}
	if count > l.Objects {
		return tooLarge("has %d files, folders and the like", count)
	}
	left := l.Unpacked
	for range count {
		size, err := sizeOfNext(scanner, left)
		if err != nil {
			return err
		}
		if left -= size; left < 0 {
			return tooLarge("has more than %d MiB, unpacked", l.Unpacked>>20)
		}
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	return failed(TooLarge, "follow a smaller repository: one for what is deployed, without builds and media", "the repository "+format, args...)
}

// sizeOfNext returns how much memory the next object takes, its delta included.
func sizeOfNext(scanner *packfile.Scanner, left int64) (int64, error) {
	h, err := scanner.NextObjectHeader()
	if err != nil {
		return 0, broken(err)
	}
	if h.Length < 0 || h.Length > left {
		return left + 1, nil
	}
	if !h.Type.IsDelta() {
		if _, _, err := scanner.NextObject(io.Discard); err != nil {
			return 0, broken(err)
		}
		return h.Length, nil
	}
	var delta bytes.Buffer
	if _, _, err := scanner.NextObject(&delta); err != nil {
		return 0, broken(err)
	}
	target, err := targetSize(bufio.NewReader(&delta))
	if err != nil {
		return 0, broken(err)
	}
	if target > left {
		return left + 1, nil
	}
	return h.Length + target, nil
}

// targetSize returns the announced size of a delta's result: the second of two numbers
// (gitformat-pack(5)).
func targetSize(r io.ByteReader) (int64, error) {
	var size int64
	for range 2 {
		size = 0
		for shift := uint(0); ; shift += 7 {
			b, err := r.ReadByte()
			if err != nil || shift > 35 {
				return 0, errors.New("a delta without its sizes")
			}
			size |= int64(b&0x7f) << shift
			if b&0x80 == 0 {
				break
			}
		}
	}
	return size, nil
}

// commitOf follows tags to a commit.
func commitOf(store *memory.Storage, hash plumbing.Hash) (*object.Commit, error) {
	for range 5 {
		if commit, err := object.GetCommit(store, hash); err == nil {
			return commit, nil
		}
		tag, err := object.GetTag(store, hash)
		if err != nil {
			break
		}
		hash = tag.Target
	}
	return nil, failed(RefMissing, "follow a branch, or a tag of a commit", "%s is not a commit", hash)
}

// collector gathers files within limits.
type collector struct {
	store *memory.Storage
	root  *object.Tree
	files Files
	left  int64
	file  int64
	links int // followed
}

// place is where an entry of a tree is.
type place struct {
	at    string // the name that it gets
	real  string // the name in the repository, which differs below a link
	via   []string
	depth int
}

func collect(store *memory.Storage, commit *object.Commit, folder string, l Limits) (Files, error) {
	root, err := object.GetTree(store, commit.TreeHash)
	if err != nil {
		return nil, broken(err)
	}
	c := &collector{store: store, root: root, files: Files{}, left: l.Unpacked, file: l.File}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	if folder == "" {
		return c.files, c.tree(root, place{})
	}
	entry, err := root.FindEntry(folder)
	if err != nil {
		return nil, failed(PathMissing, "correct path: it is seen from the root of the repository", "commit %.12s has no %s", commit.Hash, clip(folder))
	}
	for above := folder; above != "."; {
		above = path.Dir(above)
		patterns := path.Join(above, render.IgnoreFile)
		if file, err := root.FindEntry(patterns); err == nil {
			if err := c.entry(*file, place{at: patterns, real: patterns}); err != nil {
				return nil, err
			}
		}
	}
	return c.files, c.entry(*entry, place{at: folder, real: folder})
}

func (c *collector) tree(t *object.Tree, p place) error {
	if p.depth > maxDepth {
		return tooLarge("has folders in folders, more than %d deep", maxDepth)
	}
	for _, e := range t.Entries {
		if !validName(e.Name) {
			return failed(NotGit, "look at the repository with `git fsck`", "%s has an entry of the name %q", clip(p.at), clip(e.Name))
		}
		if err := c.entry(e, place{path.Join(p.at, e.Name), path.Join(p.real, e.Name), p.via, p.depth + 1}); err != nil {
			return err
		}
	}
	return nil
}

// validName reports whether a name could be a file's: others would lead out of the folder.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

func (c *collector) entry(e object.TreeEntry, p place) error {
	switch e.Mode {
	case filemode.Dir:
		t, err := object.GetTree(c.store, e.Hash)
		if err != nil {
			return broken(err)
		}
		return c.tree(t, p)
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
		return c.blob(e.Hash, p.at)
	case filemode.Symlink:
		return c.link(e.Hash, p)
	}
	return nil // a submodule
}

// maxLink bounds the target of a link: PATH_MAX of Linux.
const maxLink = 4096

// link follows a link. It leaves out links that lead out of the repository, to nothing, or back to
// a folder that they are in.
func (c *collector) link(hash plumbing.Hash, p place) error {
	if c.links++; c.links > maxFiles {
		return tooLarge("has more than %d links there, with those behind links", maxFiles)
	}
	blob, err := object.GetBlob(c.store, hash)
	if err != nil || blob.Size > maxLink {
		return nil //nolint:nilerr // as for a file that is too large
	}
	text, err := contentOf(blob)
	if err != nil {
		return err
	}
	target := path.Join(path.Dir(p.real), string(text))
	via := append(slices.Clone(p.via), p.real)
	if path.IsAbs(string(text)) || slices.ContainsFunc(via, func(in string) bool { return strings.HasPrefix(in+"/", target+"/") }) {
		return nil
	}
	e, err := c.root.FindEntry(target)
	if err != nil {
		return nil //nolint:nilerr // a link to nothing
	}
	return c.entry(*e, place{p.at, target, via, p.depth})
}

func contentOf(blob *object.Blob) ([]byte, error) {
	r, err := blob.Reader()
	if err != nil {
		return nil, broken(err)
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, broken(err)
	}
	return text, nil
}

func (c *collector) blob(hash plumbing.Hash, at string) error {
	if len(c.files) >= maxFiles {
		return tooLarge("has more than %d files there", maxFiles)
	}
	blob, err := object.GetBlob(c.store, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil // left with the server, being too large
	}
	if err != nil {
		return broken(err)
	}
	if blob.Size > c.file {
		return nil
	}
	// One blob may be many files.
	if c.left -= blob.Size; c.left < 0 {
		return tooLarge("has more than the agent takes, with what is there several times")
	}
	text, err := contentOf(blob)
	if err != nil {
		return err
	}
	c.files[at] = text
	return nil
}
