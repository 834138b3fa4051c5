package imagesignature

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Limits of what a registry may have of an image.
const (
	maxSignatures = 50
	maxReferrers  = 100
	maxAnswer     = 1 << 20 // bytes of a manifest, an index, a token
	maxSignature  = 256 << 10
)

// registry reads signatures.
type registry struct {
	ctx       context.Context //nolint:containedctx // of one look
	auth      authn.Authenticator
	transport http.RoundTripper
}

func (r registry) options() []remote.Option {
	return []remote.Option{
		remote.WithContext(r.ctx), remote.WithTransport(bounded{r.transport}), remote.WithAuth(r.auth), remote.WithJobs(1),
		remote.WithUserAgent("pipeops-agent"), remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // the caller repeats
	}
}

// simple returns the signatures with the tag that cosign gives them.
func (r registry) simple(ref name.Digest) ([]signature, error) {
	tag := ref.Context().Tag(strings.Replace(ref.DigestStr(), ":", "-", 1) + ".sig")
	image, err := remote.Image(tag, r.options()...)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	var found []signature
	for _, layer := range manifest.Layers {
		if string(layer.MediaType) != simpleMedia || layer.Annotations[signatureNote] == "" || len(found) == maxSignatures {
			continue
		}
		payload, err := blob(image, layer)
		if err != nil {
			return nil, err
		}
		found = append(found, simpleSignature(payload, layer.Annotations))
	}
	return found, nil
}

// bundles returns the signatures in bundles that refer to the image.
func (r registry) bundles(ref name.Digest) ([]signature, error) {
	index, err := remote.Referrers(ref, r.options()...)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []signature
	for n, m := range list.Manifests {
		if n == maxReferrers || len(found) == maxSignatures {
			break
		}
		if m.ArtifactType != "" && m.ArtifactType != emptyMedia && !strings.HasPrefix(m.ArtifactType, bundleMedia) {
			continue
		}
		signatures, err := r.bundle(ref.Context().Digest(m.Digest.String()))
		if err != nil {
			return nil, err
		}
		found = append(found, signatures...)
	}
	return found, nil
}

func (r registry) bundle(ref name.Digest) (found []signature, err error) {
	image, err := remote.Image(ref, r.options()...)
	if missing(err) { // it was removed since
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	for _, layer := range manifest.Layers {
		if !strings.HasPrefix(string(layer.MediaType), bundleMedia) || len(found) == maxSignatures {
			continue
		}
		text, err := blob(image, layer)
		if err != nil {
			return nil, err
		}
		if s, ok := bundleSignature(text); ok {
			found = append(found, s)
		}
	}
	return found, nil
}

// blob reads a layer, whose digest go-containerregistry verifies.
func blob(image v1.Image, d v1.Descriptor) ([]byte, error) {
	if d.Size > maxSignature {
		return nil, fmt.Errorf("the registry has a signature of more than %d KiB", maxSignature>>10)
	}
	layer, err := image.LayerByDigest(d.Digest)
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return io.ReadAll(io.LimitReader(body, maxSignature))
}

// missing reports whether the registry has no such tag or manifest.
func missing(err error) bool {
	answer, ok := errors.AsType[*transport.Error](err)
	return ok && answer.StatusCode == http.StatusNotFound
}

// said returns what went wrong, without what may be secret in a URL or an answer.
func said(err error) string {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return fmt.Sprintf("the registry answered %d", answer.StatusCode)
	}
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("the host %.253s has no address", dns.Name)
	case errors.As(err, &op):
		return fmt.Sprintf("the registry cannot be reached: %v", op.Err)
	case errors.Is(err, errPlain), errors.Is(err, errTooMuch):
		return err.Error()
	}
	return "the registry's answer cannot be used"
}

var (
	errPlain   = errors.New("the registry has no HTTPS")
	errTooMuch = fmt.Errorf("the registry sends more than %d KiB", maxAnswer>>10)
)

// bounded refuses plain HTTP, and bounds answers: go-containerregistry reads them whole.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errPlain
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limited{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

type limited struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooMuch
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
