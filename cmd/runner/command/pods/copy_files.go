package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// download copies from the container to here.
func (c *copyCommand) download(ctx context.Context, t *tarCall) error {
	dir, base := path.Split(path.Clean(c.remote))
	if base == "/" || base == ".." || base == "" {
		dir, base = c.remote, "."
	}
	dir = cmp.Or(dir, ".")
	args := []string{"-cf", "-", "-C", dir, "./" + base}
	if c.local == "-" {
		return t.receive(ctx, func(r io.Reader) error { return archive.ExtractFile(r, c.Out, &c.tally) }, args...)
	}
	root, to, err := c.destination(base)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	x := archive.Extraction{Root: root, From: base, To: to, Limits: c.limits, Tally: &c.tally, LeftOut: c.leftOut.add}
	return t.receive(ctx, x.Extract, args...)
}

// destination returns the directory that the copy comes to lie in, and its name there.
func (c *copyCommand) destination(base string) (*os.Root, string, error) {
	dir, to := c.local, base
	if info, err := os.Stat(c.local); err != nil || !info.IsDir() {
		if len(c.local) > 0 && os.IsPathSeparator(c.local[len(c.local)-1]) {
			return nil, "", cli.Usage(fmt.Errorf("%s is not a directory", c.local))
		}
		dir, to = filepath.Dir(c.local), filepath.Base(c.local)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", cli.Usage(err)
	}
	return root, to, nil
}

// upload copies from here into the container.
func (c *copyCommand) upload(ctx context.Context, t *tarCall) error {
	if c.local == "-" {
		return c.uploadInput(ctx, t, os.TempDir())
	}
	local := filepath.Clean(c.local)
	dir, base := filepath.Dir(local), filepath.Base(local)
	if base == "." || base == ".." || base == string(filepath.Separator) {
		dir, base = local, "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return c.noSource(err)
	}
	defer func() { _ = root.Close() }()
	if _, err := root.Lstat(base); err != nil {
		return c.noSource(err)
	}
	return c.pack(ctx, t, archive.Packing{Root: root, From: base}, base)
}

// noSource names the path as it was typed, and not the call that failed at a part of it.
func (c *copyCommand) noSource(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return cli.Usage(fmt.Errorf("SOURCE: %s: %w (fix: name a file or a directory on this machine)", c.local, err))
}

func (c *copyCommand) pack(ctx context.Context, t *tarCall, p archive.Packing, name string) error {
	dir, to := c.remote, name
	if !t.isDirectory(ctx, c.remote) {
		dir, to = path.Dir(c.remote), path.Base(c.remote)
	}
	if to == ".." || to == "/" {
		to = "."
	}
	p.To, p.Tally, p.LeftOut = to, &c.tally, c.leftOut.add
	return t.send(ctx, func(w io.Writer) error { return p.Pack(ctx, w) }, "-xopf", "-", "-C", dir)
}

// uploadInput copies standard input. An archive has a file's size before its contents, so it
// goes to a file first.
func (c *copyCommand) uploadInput(ctx context.Context, t *tarCall, temporary string) error {
	if t.isDirectory(ctx, c.remote) {
		return cli.Usage(errors.New("standard input has no name: give that of a file in the container, not of a directory"))
	}
	dir, err := os.MkdirTemp(temporary, "pipeops-runner-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := c.keep(ctx, root); err != nil {
		return fmt.Errorf("keep standard input until its size is known: %w", err)
	}
	return c.pack(ctx, t, archive.Packing{Root: root, From: "in"}, "in")
}

func (c *copyCommand) keep(ctx context.Context, root *os.Root) error {
	file, err := root.OpenFile("in", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(file, c.In)
		copied <- errors.Join(err, file.Close(), root.Chmod("in", fs.FileMode(0o644)))
	}()
	select {
	case err := <-copied:
		return err
	case <-ctx.Done(): // a terminal's read is not to be woken; the process ends now
		return ctx.Err()
	}
}
