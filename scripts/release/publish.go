package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// anywhere is the platform of files for all platforms.
var anywhere v1.Platform

// path returns the path from which a file of that name is published.
func (r *release) path(name string) string { return filepath.Join(r.publish(), name) }

// add writes a file and adds it to the list of published files.
func (r *release) add(name string, kind published.Kind, platform v1.Platform, fill func(io.Writer) error) error {
	r.say("make %s", name)
	if err := write(r.path(name), fill); err != nil {
		return err
	}
	return r.take(name, kind, platform)
}

// take adds an existing file to the list of published files.
func (r *release) take(name string, kind published.Kind, platform v1.Platform) error {
	sum, size, err := digestOf(r.path(name))
	if err != nil {
		return err
	}
	r.manifest.Files = append(r.manifest.Files, published.File{
		Name: name, SHA256: sum, Size: size, Kind: kind, OS: platform.OS, Arch: platform.Architecture,
	})
	return nil
}

// digestOf returns the SHA-256 of a file, as a manifest has it, and its size.
func digestOf(file string) (sum string, size int64, err error) {
	hash := sha256.New()
	if err := copyInto(hash, file); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), info.Size(), nil
}

// write creates a file that all users can read.
func write(file string, fill func(io.Writer) error) error { return writeAs(file, 0o644, fill) }

func writeAs(file string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Chmod(mode), f.Close()) // regardless of the umask
}

// text returns a function that writes the content of a file.
func text(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}
