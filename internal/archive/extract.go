package archive

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Extraction extracts a stream's files into a directory.
type Extraction struct {
	// Root is the directory that nothing leaves.
	Root *os.Root
	// From is the prefix that all of the stream's names must have, and To is what replaces it below
	// Root. "." is Root itself, or all names.
	From, To string
	Limits   Limits
	Tally    *Tally
	// LeftOut is called for what is skipped, such as a device, or a link to another place.
	LeftOut func(name, why string)

	entries int64
	open    []directory // those on the path to the current entry, the innermost last
}

// directory gets its mode and time once nothing more is put into it.
type directory struct {
	name   string
	header *tar.Header // nil for one without an entry in the stream
}

// Extract returns at the stream's end, or with the first entry that is refused or fails; what was
// written before stays. A file appears when it is complete, in place of the previous one.
func (x *Extraction) Extract(r io.Reader) error {
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.Join(x.leave(""), trailer(r))
		case err != nil:
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := x.entry(header, in); err != nil {
			return errors.Join(fmt.Errorf("%q: %w", clip(header.Name), err), x.leave(""))
		}
	}
}

// trailer reads on to the stream's end, so that its sender ends without an error.
func trailer(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTrailer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the archive: %w", err)
	case n > maxTrailer:
		return errors.New("the archive continues after its end")
	}
	return nil
}

func clip(name string) string { return name[:min(len(name), 512)] }

func (x *Extraction) entry(header *tar.Header, contents io.Reader) error {
	if x.entries++; x.entries > x.Limits.Entries {
		return fmt.Errorf("there are more than %d files", x.Limits.Entries)
	}
	name, err := x.place(header.Name)
	if err != nil {
		return err
	}
	if err := x.leave(name); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		return x.directory(name, header)
	}
	if name == "." || name == x.To && x.From == "." {
		return errors.New("it is not a directory")
	}
	if err := x.enter(path.Dir(name)); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return x.file(name, header, contents)
	case tar.TypeSymlink:
		return x.symlink(name, header)
	case tar.TypeLink:
		return x.hardLink(name, header)
	}
	x.LeftOut(header.Name, "it is neither a file nor a directory nor a link")
	return nil
}

// place returns the place of an entry, below Root.
func (x *Extraction) place(name string) (string, error) {
	switch {
	case name == "" || len(name) > maxName:
		return "", fmt.Errorf("a name has 1 to %d bytes", maxName)
	case strings.ContainsRune(name, 0):
		return "", errors.New("a name has no NUL")
	case path.IsAbs(name):
		return "", errors.New("an absolute name is refused")
	case strings.Count(name, "/") > maxDepth:
		return "", fmt.Errorf("it is more than %d directories down", maxDepth)
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", errors.New("a name with .. is refused")
	}
	rest := path.Clean(name)
	if x.From != "." {
		below, ok := strings.CutPrefix(rest+"/", x.From+"/")
		if !ok {
			return "", fmt.Errorf("it was not asked for: that was %q", x.From)
		}
		rest = below
	}
	return path.Join(x.To, rest), nil
}

// enter creates the directories down to name. It does not follow links on the path.
func (x *Extraction) enter(name string) error {
	below := "."
	for part := range strings.SplitSeq(name, "/") {
		below = path.Join(below, part)
		if below == "." || slices.ContainsFunc(x.open, func(d directory) bool { return d.name == below }) {
			continue
		}
		if err := x.ensure(below); err != nil {
			return err
		}
		x.open = append(x.open, directory{name: below})
	}
	return nil
}

func (x *Extraction) ensure(name string) error {
	info, err := x.Root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return x.Root.Mkdir(name, 0o700)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, which is not followed", name)
	case !info.IsDir():
		return fmt.Errorf("%s is there and is not a directory", name)
	}
	return nil
}

func (x *Extraction) directory(name string, header *tar.Header) error {
	if err := x.enter(name); err != nil {
		return err
	}
	if name == "." {
		return nil // it belongs to the caller
	}
	last := &x.open[len(x.open)-1]
	if last.header == nil {
		x.Tally.others.Add(1)
		// Its owner needs access until all is in it.
		if err := x.Root.Chmod(name, mode(header)|0o700); err != nil {
			return err
		}
	}
	last.header = header
	return nil
}

// leave finishes the directories that do not contain name.
func (x *Extraction) leave(name string) error {
	for len(x.open) > 0 {
		d := x.open[len(x.open)-1]
		if name == d.name || strings.HasPrefix(name, d.name+"/") {
			return nil
		}
		x.open = x.open[:len(x.open)-1]
		if d.header == nil {
			continue
		}
		if err := x.finish(d.name, d.header); err != nil {
			return err
		}
	}
	return nil
}

// mode keeps only the permission bits of an entry, so that a copy gives no program another
// identity.
func mode(header *tar.Header) fs.FileMode { return header.FileInfo().Mode().Perm() }

func (x *Extraction) finish(name string, header *tar.Header) error {
	if err := x.Root.Chmod(name, mode(header)); err != nil {
		return err
	}
	return x.Root.Chtimes(name, header.ModTime, header.ModTime)
}

func (x *Extraction) file(name string, header *tar.Header, contents io.Reader) error {
	// Holes would make files larger than what was sent for them.
	for key := range maps.Keys(header.PAXRecords) {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errors.New("a file with holes is refused")
		}
	}
	if header.Size > x.Limits.Bytes-x.Tally.Bytes() {
		return fmt.Errorf("with this file of %s there is more than %s", Size(header.Size), Size(x.Limits.Bytes))
	}
	unfinished := path.Join(path.Dir(name), ".copy-"+rand.Text()[:12])
	file, err := x.Root.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = x.Tally.contents(file, contents)
	if err = errors.Join(err, file.Close()); err == nil {
		err = x.finish(unfinished, header)
	}
	if err == nil {
		err = x.Root.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("not complete, and left out: %w", err), x.Root.Remove(unfinished))
	}
	x.Tally.files.Add(1)
	return nil
}

// symlink creates links that stay below To, in every state of the path. That holds if only the
// start of a link's target leads up. The link starts in a real directory and leads up to another
// one. From there it leads down over entries for which the same holds.
func (x *Extraction) symlink(name string, header *tar.Header) error {
	if why := strays(name, x.To, header.Linkname); why != "" {
		x.LeftOut(header.Name, fmt.Sprintf("it is a link to %q, %s", clip(header.Linkname), why))
		return nil
	}
	return x.replace(name, func() error { return x.Root.Symlink(header.Linkname, name) })
}

// strays returns why a link leads elsewhere, or an empty string.
func strays(name, top, target string) string {
	if target == "" || len(target) > maxName || strings.ContainsAny(target, "\x00\\") {
		return "which is not a name"
	}
	if path.IsAbs(target) || strings.Contains(target, ":") {
		return "which is absolute"
	}
	depth, down := strings.Count(name, "/"), false
	if top != "." {
		depth -= strings.Count(top, "/") + 1
	}
	if depth < 0 {
		return "which is outside of what is copied"
	}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return "which is outside of what is copied"
			}
			if down {
				return "which leads up again after leading down"
			}
		default:
			down = true
		}
	}
	return ""
}

func (x *Extraction) hardLink(name string, header *tar.Header) error {
	first, err := x.place(header.Linkname)
	if err != nil {
		return fmt.Errorf("a link to %q: %w", clip(header.Linkname), err)
	}
	if first == name {
		return errors.New("it is a link to itself")
	}
	for dir := path.Dir(first); dir != "."; dir = path.Dir(dir) {
		if info, err := x.Root.Lstat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("a link to %q, which is not in a directory of the archive", clip(header.Linkname))
		}
	}
	info, err := x.Root.Lstat(first)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		x.LeftOut(header.Name, fmt.Sprintf("it is a link to %q, which is not a file that came before", clip(header.Linkname)))
		return nil
	}
	if err != nil {
		return err
	}
	return x.replace(name, func() error { return x.Root.Link(first, name) })
}

// replace creates something in place of an existing file or link.
func (x *Extraction) replace(name string, with func() error) error {
	if info, err := x.Root.Lstat(name); err == nil {
		if info.IsDir() {
			return errors.New("a directory is there")
		}
		if err := x.Root.Remove(name); err != nil {
			return err
		}
	}
	if err := with(); err != nil {
		return err
	}
	x.Tally.others.Add(1)
	return nil
}

// ExtractFile writes the contents of the stream's single file to w.
func ExtractFile(r io.Reader, w io.Writer, t *Tally) error {
	in := tar.NewReader(r)
	header, err := in.Next()
	switch {
	case err != nil:
		return fmt.Errorf("read the archive: %w", err)
	case header.Typeflag != tar.TypeReg:
		return fmt.Errorf("%q: it is not a file; only one goes to standard output", clip(header.Name))
	}
	if err := t.contents(w, in); err != nil {
		return fmt.Errorf("%q: %w", clip(header.Name), err)
	}
	t.files.Add(1)
	switch _, err := in.Next(); {
	case err == nil:
		return errors.New("there is more than one file")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("read the archive: %w", err)
	}
	return trailer(r)
}
