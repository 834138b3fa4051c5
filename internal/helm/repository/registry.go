package repository

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a chart is in a registry.
const (
	chartLayer    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	oldChartLayer = "application/tar+gzip"
)

// fromRegistry gets a chart by go-containerregistry, which needs no files of its own and
// verifies digests; Helm's own client looks for Docker's credentials in $HOME.
func (f *Fetcher) fromRegistry(ctx context.Context, source runnerapi.ChartSource, l *Login) ([]byte, error) {
	at, err := parseURL(source.OCI, "chart.oci")
	if err != nil {
		return nil, err
	}
	ref, err := f.reference(at, source.Version)
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "give oci://HOST/PATH and a version, or a digest", "%v", err).WithField("chart.oci")
	}
	auth := authn.Anonymous
	if l != nil {
		auth = authn.FromConfig(authn.AuthConfig{Username: l.username, Password: l.password})
	}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithTransport(f.registryTransport(ref, l)), remote.WithAuth(auth), remote.WithJobs(1))
	if err != nil {
		return nil, unpulled(at, err, l != nil)
	}
	layer, err := chartOf(image)
	if err != nil {
		return nil, unpulled(at, err, l != nil)
	}
	if size, err := layer.Size(); err != nil || size > maxArchive {
		return nil, tooLarge("the chart's archive", maxArchive)
	}
	data, err := layer.Compressed()
	if err != nil {
		return nil, unpulled(at, err, l != nil)
	}
	defer func() { _ = data.Close() }()
	return readAll(data, maxArchive, "the chart's archive")
}

func (f *Fetcher) reference(at *url.URL, version string) (name.Reference, error) {
	var options []name.Option
	if f.plainHost(at) {
		options = append(options, name.Insecure)
	} else {
		options = append(options, name.StrictValidation)
	}
	repository := at.Host + at.Path
	if strings.HasPrefix(version, "sha256:") {
		return name.NewDigest(repository+"@"+version, options...)
	}
	// A tag has no plus sign, so Helm writes an underscore.
	return name.NewTag(repository+":"+strings.ReplaceAll(version, "+", "_"), options...)
}

func chartOf(image v1.Image) (v1.Layer, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		if t, err := layer.MediaType(); err == nil && (t == chartLayer || t == oldChartLayer) {
			return layer, nil
		}
	}
	return nil, errors.New("this is not a chart: it has no layer " + chartLayer)
}

func unpulled(at *url.URL, err error, sent bool) error {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		if answer.StatusCode == http.StatusNotFound {
			return problem.Errorf(problem.Invalid, "check the reference and the version", "the registry has no such chart: %s", shown(at)).WithField("chart")
		}
		return refused(at, answer.StatusCode, sent)
	}
	return unfetched(at, err)
}
