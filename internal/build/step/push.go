package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// tagDigits is how many digits of a commit become a tag.
const tagDigits = 12

// Push pushes what the builder left. Credentials are in config.json of the directory in
// DOCKER_CONFIG, as docker's own are.
type Push struct {
	Repository name.Tag // without a tag, the commit becomes the tag
	Dir        string   // Work
	CommitDir  string
	Transport  http.RoundTripper
	Out        io.Writer
}

// Run returns the image's name and digest.
func (p Push) Run(ctx context.Context) (Result, error) {
	if err := plain(p.Dir); err != nil {
		return Result{}, err
	}
	tag := p.Repository
	if tag.TagStr() == "" {
		commit, err := os.ReadFile(filepath.Join(p.CommitDir, commitFile))
		if err != nil {
			return Result{}, fmt.Errorf("read the commit: %w", err)
		}
		if !digits.Match(commit) {
			return Result{}, errors.New("the commit is none")
		}
		tag = tag.Tag(string(commit[:tagDigits]))
	}
	digest, err := p.push(ctx, tag)
	if err != nil {
		return Result{}, pushError(tag, err)
	}
	_, _ = fmt.Fprintf(p.Out, "pushed %s@%s\n", tag.Name(), digest)
	return Result{Tag: tag.Name(), Image: tag.Repository.Name() + "@" + digest.String()}, nil
}

// digits matches a commit.
var digits = regexp.MustCompile(`^[0-9a-f]{40}$`)

// plain refuses links in what the builder left: a Dockerfile's step may have created them to read
// what only this step can reach. No other process runs any more.
func plain(dir string) error {
	return filepath.WalkDir(filepath.Join(dir, filepath.Base(Image)), func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			err = fail("image_invalid", "look at what the Dockerfile does to the builder", "%s is not a plain file", filepath.Base(at))
		}
		return err
	})
}

// push pushes the layout's single image, or index of images for several platforms.
func (p Push) push(ctx context.Context, tag name.Tag) (v1.Hash, error) {
	index, err := layout.ImageIndexFromPath(filepath.Join(p.Dir, filepath.Base(Image)))
	if err != nil {
		return v1.Hash{}, fmt.Errorf("read the image: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		return v1.Hash{}, fmt.Errorf("the builder left no single image: %w", err)
	}
	of := manifest.Manifests[0]
	_, _ = fmt.Fprintf(p.Out, "pushing %s\n", tag.Name())
	transport := p.Transport
	if transport == nil {
		transport = remote.DefaultTransport
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2), remote.WithTransport(onlyTLS{transport}),
	}
	if of.MediaType.IsIndex() {
		inner, err := index.ImageIndex(of.Digest)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("read the image: %w", err)
		}
		if err := remote.WriteIndex(tag, inner, options...); err != nil {
			return v1.Hash{}, err
		}
		return of.Digest, nil
	}
	img, err := index.Image(of.Digest)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("read the image: %w", err)
	}
	if err := remote.Write(tag, img, options...); err != nil {
		return v1.Hash{}, err
	}
	return of.Digest, nil
}

// onlyTLS refuses plain HTTP, which the library falls back to for registries with private
// addresses: it would carry credentials.
type onlyTLS struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errPlain
	}
	return o.next.RoundTrip(r)
}

var errPlain = errors.New("plain HTTP is not spoken")

func pushError(tag name.Tag, err error) error {
	var answer *transport.Error
	var dns *net.DNSError
	var op *net.OpError
	switch registry := tag.RegistryStr(); {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return fail("registry_denied", "name a Secret of type kubernetes.io/dockerconfigjson in pushCredentials whose user may push there",
			"%s does not let this be pushed to %s", registry, tag.RepositoryStr())
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return fail("repository_missing", "create the repository in the registry, or correct image", "%s has no repository %s", registry, tag.RepositoryStr())
	case errors.As(err, &answer):
		return fail("registry_refused", "see what the registry says", "%s answers %d", registry, answer.StatusCode)
	case strings.Contains(err.Error(), "x509:"): // net/http and its callers wrap it in several ways
		return fail("registry_not_trusted", "put the certificate of the CA that it is from into a ConfigMap and name it in ca",
			"the certificate of %s is not to be trusted", registry)
	case errors.As(err, &dns), errors.As(err, &op), errors.Is(err, context.DeadlineExceeded):
		return fail("registry_unreachable", "correct image, or let pods of this namespace out to the registry", "%s cannot be reached: %v", registry, err)
	}
	return err
}
