package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n" //nolint:gosec // the users' names, no password
	group  = "root:x:0:\nnonroot:x:65532:\n"

	// Go's crypto/x509 looks here first on Linux.
	caBundlePath = "etc/ssl/certs/ca-certificates.crt"
)

// SystemCABundle returns the build machine's bundle of certificate authorities, or an empty string
// if it has none.
func SystemCABundle() string {
	const bundle = "/" + caBundlePath
	if _, err := os.Stat(bundle); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return bundle
}

func newLayer(spec Spec) (v1.Layer, error) {
	content, err := layerContent(spec)
	if err != nil {
		return nil, err
	}
	if spec.Uncompressed {
		return static.NewLayer(content, types.OCIUncompressedLayer), nil
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return tarball.LayerFromOpener(opener,
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func layerContent(spec Spec) ([]byte, error) {
	binary, err := os.ReadFile(spec.Binary)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
	}
	var buf bytes.Buffer
	w := layerWriter{tar: tar.NewWriter(&buf)}
	w.dir("etc/", 0o755)
	w.file("etc/passwd", 0o644, []byte(passwd))
	w.file("etc/group", 0o644, []byte(group))
	if spec.CABundle != "" {
		bundle, err := os.ReadFile(spec.CABundle)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities: %w", err)
		}
		w.dir("etc/ssl/", 0o755)
		w.dir("etc/ssl/certs/", 0o755)
		w.file(caBundlePath, 0o644, bundle)
	}
	w.dir("tmp/", 0o1777)
	w.dataDir(strings.Trim(spec.DataDir, "/"))
	w.file(strings.TrimPrefix(spec.Name, "/"), 0o755, binary)
	if err := w.close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return buf.Bytes(), nil
}

// layerWriter writes tar entries whose headers depend on nothing but the
// arguments, and keeps the first error.
type layerWriter struct {
	tar *tar.Writer
	err error
}

func (w *layerWriter) dir(name string, mode int64) {
	w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
}

// dataDir makes a directory that is the image's user's, and those above it.
func (w *layerWriter) dataDir(name string) {
	if name == "" {
		return
	}
	for i, r := range name {
		if r == '/' {
			w.dir(name[:i+1], 0o755)
		}
	}
	w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700, Uid: UserID, Gid: UserID}, nil)
}

func (w *layerWriter) file(name string, mode int64, content []byte) {
	w.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (w *layerWriter) entry(header *tar.Header, content []byte) {
	if w.err != nil {
		return
	}
	header.ModTime = Epoch
	header.Format = tar.FormatPAX
	if w.err = w.tar.WriteHeader(header); w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}

func (w *layerWriter) close() error {
	return errors.Join(w.err, w.tar.Close())
}
