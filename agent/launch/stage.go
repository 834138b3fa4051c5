package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// program is the name of a staged release's program.
const program = "pipeops-agent"

// ErrTampered is that of a program that is not the one that was signed.
var ErrTampered = errors.New("it is not what was signed")

// Program returns the agent's for this machine in a release.
func Program(m *release.Manifest) (release.File, bool) {
	return m.File(release.KindAgent, runtime.GOOS, runtime.GOARCH)
}

// Stage stores a release's program, read from body, with the manifest and the signatures by which
// it is verified at each start. If size or digest differ from the manifest, it stores nothing and
// returns ErrTampered.
func (d Dir) Stage(m *release.Manifest, manifest, signature []byte, body io.Reader) error {
	want, ok := Program(m)
	if !ok {
		return fmt.Errorf("%s has no agent for %s/%s", m.Version, runtime.GOOS, runtime.GOARCH)
	}
	if err := os.MkdirAll(d.file(m.Version), 0o700); err != nil {
		return err
	}
	for name, text := range map[string][]byte{release.ManifestName: manifest, release.SignatureName: signature} {
		if err := atomicfile.Write(d.file(m.Version, name), text); err != nil {
			return err
		}
	}
	return atomicfile.Fill(d.file(m.Version, program), func(f *os.File) error {
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, want.Size+1))
		if err != nil {
			return err
		}
		return errors.Join(same(want, n, sum.Sum(nil)), f.Chmod(0o700))
	})
}

func same(want release.File, size int64, sum []byte) error {
	switch {
	case size > want.Size:
		return fmt.Errorf("%s is larger than the %d bytes of the release: %w", want.Name, want.Size, ErrTampered)
	case size < want.Size:
		return fmt.Errorf("%s: %d bytes came, not %d: %w", want.Name, size, want.Size, io.ErrUnexpectedEOF)
	case hex.EncodeToString(sum) != want.SHA256:
		return fmt.Errorf("%s has the SHA-256 %x, not %s: %w", want.Name, sum, want.SHA256, ErrTampered)
	}
	return nil
}

// Verified returns the path of a staged version's program, after it has verified the signatures and
// digest again. A program that was damaged or replaced since the download is not started. This does
// not stop an attacker that can write to the directory and swaps the program between verification
// and start: that is the agent's user, or root.
func (d Dir) Verified(version string, trust release.Trust) (path string, err error) {
	if !release.ValidVersion(version) {
		return "", fmt.Errorf("%q is not a release's version", version)
	}
	manifest, err := boundedfile.Read(d.file(version, release.ManifestName), release.MaxManifest)
	if err != nil {
		return "", err
	}
	signature, err := boundedfile.Read(d.file(version, release.SignatureName), release.MaxSignature)
	if err != nil {
		return "", err
	}
	m, err := trust.Open(manifest, signature)
	if err != nil {
		return "", err
	}
	want, ok := Program(m)
	if !ok || m.Version != version {
		return "", fmt.Errorf("%s is not for %s, %s/%s", m.Version, version, runtime.GOOS, runtime.GOARCH)
	}
	path = d.file(version, program)
	if err := verify(path, want); err != nil {
		return "", err
	}
	return path, nil
}

func verify(path string, want release.File) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, want.Size+1))
	if err != nil {
		return err
	}
	return same(want, n, sum.Sum(nil))
}

// Keep removes all staged versions but these.
func (d Dir) Keep(versions ...string) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, v := range versions {
		keep[v] = true
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && release.ValidVersion(e.Name()) && !keep[e.Name()] {
			errs = append(errs, os.RemoveAll(d.file(e.Name())))
		}
	}
	return errors.Join(errs...)
}
