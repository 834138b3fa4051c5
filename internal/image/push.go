package image

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// PushOptions describe how to reach the registry.
type PushOptions struct {
	// PlainHTTP talks to a registry without TLS.
	PlainHTTP bool
	// Transport replaces the default one.
	Transport http.RoundTripper
}

// Push uploads an image or an index under ref, with the credentials that
// `docker login` stored, if any.
func Push(ctx context.Context, ref string, what Named, options PushOptions) error {
	var nameOptions []name.Option
	if options.PlainHTTP {
		nameOptions = append(nameOptions, name.Insecure)
	}
	target, err := name.ParseReference(ref, nameOptions...)
	if err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	remoteOptions := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2),
	}
	if options.Transport != nil {
		remoteOptions = append(remoteOptions, remote.WithTransport(options.Transport))
	}
	if what.Index != nil {
		err = remote.WriteIndex(target, what.Index, remoteOptions...)
	} else {
		err = remote.Write(target, what.Image, remoteOptions...)
	}
	if err != nil {
		return fmt.Errorf("push image %s: %w", ref, err)
	}
	return nil
}
