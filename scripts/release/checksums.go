package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// checksums writes what `sha256sum -c` reads.
func (r *release) checksums(context.Context) error {
	published, err := os.ReadDir(r.publish()) // sorted by name
	if err != nil {
		return err
	}
	file := filepath.Join(r.publish(), "checksums.txt")
	r.say("list checksums.txt")
	return write(file, func(w io.Writer) error {
		for _, p := range published {
			sum := sha256.New()
			if err := copyInto(sum, filepath.Join(r.publish(), p.Name())); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sum.Sum(nil), p.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}
