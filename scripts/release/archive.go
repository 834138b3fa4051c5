package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name string // in the archive
	file string // on this machine
	mode fs.FileMode
}

// below returns a file, or all files of a directory, in lexical order. Tests and Go sources are for
// the repository, not for an archive.
func below(root, name string) (entries []entry, err error) {
	err = filepath.WalkDir(filepath.Join(root, name), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) == ".go" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		entries = append(entries, entry{name: filepath.ToSlash(relative), file: file, mode: mode})
		return nil
	})
	return entries, err
}

// tarball writes a .tar.gz whose bytes depend on nothing but its files and the time.
func tarball(w io.Writer, top string, entries []entry, at time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, e := range entries {
		info, err := os.Stat(e.file)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(top, e.name), Mode: int64(e.mode), Size: info.Size(), ModTime: at}
		if err := errors.Join(archive.WriteHeader(header), copyInto(archive, e.file)); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// zipped writes a .zip, as tarball does.
func zipped(w io.Writer, top string, entries []entry, at time.Time) error {
	archive := zip.NewWriter(w)
	for _, e := range entries {
		header := &zip.FileHeader{Name: path.Join(top, e.name), Method: zip.Deflate, Modified: at}
		header.SetMode(e.mode)
		into, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if err := copyInto(into, e.file); err != nil {
			return err
		}
	}
	return archive.Close()
}

func copyInto(w io.Writer, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(w, f)
	return err
}
