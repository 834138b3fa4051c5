package main

import (
	stdtar "archive/tar"
	"context"
	"errors"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
)

// tar stands in for the tar that images usually have, where this program is called by that
// name: `-cf - -C DIRECTORY ./NAME` and `-xopf - -C DIRECTORY` alone, and of kubectl's
// `cf - /PATH` and `-xmf - -C DIRECTORY`.
func tar(args []string) int {
	log.SetOutput(os.Stderr)
	if len(args) == 3 && args[0] == "cf" {
		return tarOne(args[2])
	}
	if len(args) < 4 || args[1] != "-" || args[2] != "-C" {
		log.Printf("tar: %q is not what this one can do", args)
		return 2
	}
	root, err := os.OpenRoot(args[3])
	if err != nil {
		log.Printf("tar: %v", err)
		return 2
	}
	defer func() { _ = root.Close() }()
	code := 0
	leftOut := func(name, why string) { log.Printf("tar: %s: %s", name, why); code = 2 }
	switch {
	case args[0] == "-cf" && len(args) == 5:
		name := path.Clean(args[4])
		p := archive.Packing{Root: root, From: name, To: name, Tally: &archive.Tally{}, LeftOut: leftOut}
		err = p.Pack(context.Background(), os.Stdout)
	case (args[0] == "-xopf" || args[0] == "-xmf") && len(args) == 4:
		x := archive.Extraction{Root: root, From: ".", To: ".", Tally: &archive.Tally{}, LeftOut: leftOut,
			Limits: archive.Limits{Entries: 1 << 20, Bytes: 1 << 40}}
		err = x.Extract(os.Stdin)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	if err != nil {
		log.Printf("tar: %v", err)
		return 2
	}
	return code
}

// tarOne packs one file under its whole name, as kubectl wants it.
func tarOne(name string) int {
	file, err := os.Open(name)
	if err != nil {
		log.Printf("tar: %v", err)
		return 2
	}
	defer func() { _ = file.Close() }()
	out := stdtar.NewWriter(os.Stdout)
	info, err := file.Stat()
	if err == nil {
		err = out.WriteHeader(&stdtar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o600, Size: info.Size()})
	}
	if err == nil {
		_, err = io.Copy(out, file)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		log.Printf("tar: %v", err)
		return 2
	}
	return 0
}

// isTar reports whether this program is called as tar is. The image's own command has no arguments
// that tar has.
func isTar() bool {
	return filepath.Base(os.Args[0]) == "tar" && len(os.Args) > 2 && os.Args[2] == "-"
}
