package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// signer adds a maintainer's signature to a release that is made already.
type signer struct {
	dir     string
	key     published.SecretKey
	expires time.Time // zero to leave it as it is
	out     io.Writer
}

func newSignCommand() *cobra.Command {
	var s signer
	var keyFile, passphraseFile, expires string
	cmd := &cobra.Command{
		Use:   "sign DIR --key KEYFILE",
		Short: "Add a maintainer's signature to a release",
		Long: `Add a maintainer's signature to those of a release, which is in DIR. First compare its
SHA256SUMS with those of your own build of the tag: docs/contributing/publishing.md says how.

With --expires, the release gets another time, and this signature takes the place of all others.`,
		Example: "  go run ./scripts/release sign dist/v1.2.3 --key ../keys/second.key --passphrase-file ../keys/passphrase",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := openKey("--key", keyFile, passphraseFile)
			if err != nil {
				return err
			}
			s.dir, s.key, s.out = args[0], *key, cmd.OutOrStdout()
			if expires != "" {
				if s.expires, err = expiry(expires, time.Time{}); err != nil {
					return err
				}
			}
			return s.run()
		},
	}
	f := cmd.Flags()
	f.StringVar(&keyFile, "key", "", "minisign secret key to sign with")
	f.StringVar(&passphraseFile, "passphrase-file", "", "file with the passphrase of that key")
	f.StringVar(&expires, "expires", "", "time from which on agents do not take the release any more, RFC 3339, instead of the one that it has")
	if err := cmd.MarkFlagRequired("key"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// run signs the manifest and the checksums, once they have been compared with the files.
func (s signer) run() error {
	manifest, err := boundedfile.Head(s.path(published.ManifestName), published.MaxManifest+1)
	if err != nil {
		return err
	}
	m, err := published.Decode(manifest)
	if err != nil {
		return err
	}
	if err := s.compare(m); err != nil {
		return err
	}
	sums, err := s.sums(m)
	if err != nil {
		return err
	}
	listed, err := boundedfile.Head(s.path(published.SumsName), int64(len(sums))+1)
	if err != nil {
		return err
	}
	if string(listed) != string(sums) {
		return fmt.Errorf("%s does not list the files of %s (fix: make the release again)", published.SumsName, published.ManifestName)
	}
	if !s.expires.IsZero() {
		if manifest, sums, err = s.renew(m); err != nil {
			return err
		}
	}
	if err := checkFuture(m.Expires, time.Now()); err != nil {
		return err
	}
	return errors.Join(s.add(m.Version, published.ManifestName, manifest), s.add(m.Version, published.SumsName, sums))
}

// renew gives a release another time, and removes the signatures, which do not fit any more.
func (s signer) renew(m *published.Manifest) (manifest, sums []byte, err error) {
	if err := checkFuture(s.expires, time.Now()); err != nil {
		return nil, nil, err
	}
	m.Expires = s.expires
	if manifest, err = m.Encode(); err != nil {
		return nil, nil, err
	}
	if err := replaceFile(s.path(published.ManifestName), manifest); err != nil {
		return nil, nil, err
	}
	if sums, err = s.sums(m); err != nil {
		return nil, nil, err
	}
	for _, name := range []string{published.ManifestName, published.SumsName} {
		if err := os.Remove(s.path(name) + signatureSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return manifest, sums, replaceFile(s.path(published.SumsName), sums)
}

func (s signer) path(name string) string { return filepath.Join(s.dir, name) }

// compare refuses a release whose files are not those of its manifest.
func (s signer) compare(m *published.Manifest) error {
	for _, f := range m.Files {
		sum, size, err := digestOf(s.path(f.Name))
		if err != nil {
			return err
		}
		if sum != f.SHA256 || size != f.Size {
			return fmt.Errorf("%s: its SHA-256 is %s, %s lists %s (fix: get the file again, or make the release again)", f.Name, sum, published.ManifestName, f.SHA256)
		}
	}
	return nil
}

// sums returns the checksums of a release with this manifest, which is in its folder.
func (s signer) sums(m *published.Manifest) ([]byte, error) {
	sum, _, err := digestOf(s.path(published.ManifestName))
	return sumsOf(append(slices.Clone(m.Files), published.File{Name: published.ManifestName, SHA256: sum})), err
}

// add appends the signature to those of a file, unless this key has signed it already.
func (s signer) add(version, name string, content []byte) error {
	file := s.path(name) + signatureSuffix
	before, err := boundedfile.Head(file, published.MaxSignature+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(before) > 0 {
		signers, err := published.Signers(before)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if slices.Contains(signers, s.key.Public().ID()) {
			fmt.Fprintf(s.out, "%s is signed by %s already\n", name, s.key.Public())
			return nil
		}
	}
	after := slices.Concat(before, signatureOf(s.key, version, name, content))
	if len(after) > published.MaxSignature {
		return fmt.Errorf("%s: %d bytes of signatures are more than its readers take (%d)", file, len(after), published.MaxSignature)
	}
	fmt.Fprintf(s.out, "%s signed by %s\n", name, s.key.Public())
	return replaceFile(file, after)
}

// replaceFile writes a file that all users can read beside its place, and moves it there.
func replaceFile(file string, content []byte) error {
	if err := write(file+".new", text(content)); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
