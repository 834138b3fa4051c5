package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// Packing writes files into a stream.
type Packing struct {
	Root *os.Root
	// From is the name below Root of the file or directory, and To is its name in the stream. "."
	// is Root itself.
	From, To string
	Tally    *Tally
	// LeftOut is called for what is skipped, such as a socket, or an unreadable file.
	LeftOut func(name, why string)
}

// Pack writes the stream and its end. Symbolic links are written as links, files with their mode
// and time to the second. It omits the owner.
func (p *Packing) Pack(ctx context.Context, w io.Writer) error {
	out := tar.NewWriter(w)
	err := fs.WalkDir(p.Root.FS(), p.From, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == p.From:
			return err
		case err != nil:
			p.LeftOut(name, err.Error())
			return nil
		}
		return p.entry(out, name, entry)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func (p *Packing) entry(out *tar.Writer, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		p.LeftOut(name, err.Error())
		return nil
	}
	link := ""
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return p.file(out, name)
	case mode&fs.ModeSymlink != 0:
		if link, err = p.Root.Readlink(name); err != nil {
			p.LeftOut(name, err.Error())
			return nil
		}
	case !mode.IsDir():
		p.LeftOut(name, "it is neither a file nor a directory nor a link")
		return nil
	}
	if err := p.header(out, name, info, link); err != nil {
		return err
	}
	p.Tally.others.Add(1)
	return nil
}

func (p *Packing) header(out *tar.Writer, name string, info fs.FileInfo, link string) error {
	h, err := tar.FileInfoHeader(anonymous{info}, link)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	below := name
	if p.From != "." {
		below = name[len(p.From):]
	}
	h.Name = "./" + path.Join(p.To, below)
	if info.IsDir() {
		h.Name += "/"
	}
	// The one format for long names and large files that every tar reads.
	h.Format = tar.FormatGNU
	h.ModTime = h.ModTime.Truncate(time.Second)
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if err := out.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// anonymous is a file without an owner, whom tar.FileInfoHeader would look up otherwise.
type anonymous struct{ fs.FileInfo }

// Sys implements fs.FileInfo.
func (anonymous) Sys() any { return nil }

func (p *Packing) file(out *tar.Writer, name string) error {
	file, err := p.Root.Open(name)
	if err != nil {
		p.LeftOut(name, err.Error())
		return nil
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		p.LeftOut(name, err.Error())
		return nil
	}
	if err := p.header(out, name, info, ""); err != nil {
		return err
	}
	// A file that grows meanwhile is written in its old size; one that shrinks is an error.
	was := p.Tally.Bytes()
	if err := p.Tally.contents(out, io.LimitReader(file, info.Size())); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if got := p.Tally.Bytes() - was; got != info.Size() {
		return fmt.Errorf("%s became shorter while it was read: %d bytes of %d", name, got, info.Size())
	}
	p.Tally.files.Add(1)
	return nil
}
