package main

import (
	"encoding/pem"
	"io"
	"path/filepath"

	// Mozilla's roots as the Go team publishes them. They are a version in go.mod, so
	// that the images do not depend on the machine that makes them.
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// caBundle writes the CAs that the images trust. It leaves out the few that Mozilla trusts with a
// condition, which a file cannot express.
func (r *release) caBundle() (file string, err error) {
	file = filepath.Join(r.staging, "ca-certificates.crt")
	return file, write(file, func(w io.Writer) error {
		for root := range bundle.Roots() {
			if root.Constraint != nil {
				continue
			}
			if err := pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return err
			}
		}
		return nil
	})
}
