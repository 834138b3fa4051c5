package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// versionFile writes what installers ask for the newest version.
func (r *release) versionFile(context.Context) error {
	return r.add(published.VersionName, published.KindVersion, anywhere, text([]byte(r.version+"\n")))
}

// prove writes what others check a download with: the manifest, the checksums of
// all files with it, as `sha256sum -c` reads them, and signatures of both.
func (r *release) prove(context.Context) error {
	slices.SortFunc(r.manifest.Files, func(a, b published.File) int { return cmp.Compare(a.Name, b.Name) })
	manifest, err := r.manifest.Encode()
	if err != nil {
		return err
	}
	if err := r.add(published.ManifestName, "", anywhere, text(manifest)); err != nil {
		return err
	}
	sums := sumsOf(r.manifest.Files)
	r.say("make %s", published.SumsName)
	if err := write(r.path(published.SumsName), text(sums)); err != nil {
		return err
	}
	return r.sign(map[string][]byte{published.ManifestName: manifest, published.SumsName: sums})
}

// sumsOf lists files as `sha256sum -c` reads them.
func sumsOf(files []published.File) []byte {
	var sums strings.Builder
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", f.SHA256, f.Name)
	}
	return []byte(sums.String())
}

func (r *release) sign(files map[string][]byte) error {
	if r.key == nil {
		r.say("not signed: no agent updates itself to this version (fix: --sign KEYFILE)")
		return nil
	}
	for name, content := range files {
		if err := write(r.path(name)+signatureSuffix, text(signatureOf(*r.key, r.version, name, content))); err != nil {
			return err
		}
	}
	r.say("signed by %s", r.key.Public())
	return nil
}

// signatureSuffix is that of the file beside the signed one.
const signatureSuffix = ".minisig"

// signatureOf signs a file of a release. The comment is signed too: no other version's file can
// pass for this one's.
func signatureOf(key published.SecretKey, version, name string, content []byte) []byte {
	return key.Sign(content, fmt.Sprintf("pipeops %s %s", version, name))
}

// maxPassphrase bounds what is read of a passphrase's file.
const maxPassphrase = 4 << 10

// keys reads the key to sign with, and finds the public keys with which the agents
// of this release are stamped.
func (r *release) keys(keyFile, passphraseFile, trusted string) error {
	list, err := published.ParseKeys(trusted)
	if err != nil {
		return err
	}
	for _, key := range list {
		r.trusted = append(r.trusted, key.String())
	}
	if keyFile == "" {
		return nil
	}
	if r.key, err = openKey("--sign", keyFile, passphraseFile); err != nil {
		return err
	}
	own := r.key.Public()
	for _, key := range list {
		if key.Equal(own) {
			return nil
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("--trust does not name the key that signs, %s: its agents would not take the next release", own)
	}
	r.trusted = []string{own.String()}
	return nil
}

// openKey reads a secret key, which a flag names.
func openKey(flag, keyFile, passphraseFile string) (*published.SecretKey, error) {
	file, err := readSmall(keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	passphrase := ""
	if passphraseFile != "" {
		content, err := readSmall(passphraseFile)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file: %w", err)
		}
		passphrase = strings.TrimRight(string(content), "\r\n")
	}
	key, err := published.ParseSecretKey(file, passphrase)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w (fix: --passphrase-file)", flag, keyFile, err)
	}
	return &key, nil
}

func readSmall(file string) (content []byte, err error) {
	return boundedfile.Head(file, maxPassphrase+1)
}
