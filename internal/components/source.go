package components

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Source is where charts come from.
type Source struct {
	Fetch *repository.Fetcher
	// Mirror, if set, replaces the address of every chart repository.
	Mirror string
	// Directory, if set, holds all charts as NAME-VERSION.tgz. Nothing is downloaded then.
	Directory string
}

// Archive returns the archive of a chart, which has the digest that this build knows.
func (s *Source) Archive(ctx context.Context, c Chart) ([]byte, error) {
	archive, err := s.archive(ctx, c)
	if err != nil {
		return nil, err
	}
	return archive, verify(c, archive)
}

// load returns a chart whose archive has the digest that this build knows.
func (s *Source) load(ctx context.Context, c Chart) (*chart.Chart, error) {
	if c.IsOwn() {
		return loadOwn(c.Name)
	}
	archive, err := s.Archive(ctx, c)
	if err != nil {
		return nil, err
	}
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c, err)
	}
	return ch, nil
}

func (s *Source) archive(ctx context.Context, c Chart) ([]byte, error) {
	if s.Directory == "" {
		packed, err := s.Fetch.Chart(ctx, runnerapi.ChartSource{Repository: cmp.Or(s.Mirror, c.Repository), Name: c.Name, Version: c.Version}, nil)
		if known, ok := problem.Of(err); ok {
			known.Fix += "; or get the charts elsewhere: --mirror URL, or --charts DIRECTORY"
			err = known
		}
		if err != nil {
			return nil, &unfetchedError{err}
		}
		return packed, nil
	}
	name := c.String() + ".tgz"
	data, err := os.ReadFile(filepath.Join(s.Directory, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Errorf(problem.NotFound, "put it there: helm pull "+c.Name+" --repo "+c.Repository+" --version "+c.Version,
			"the directory %s has no %s", s.Directory, name)
	}
	return data, err
}

// verify returns an error unless an archive has the digest that this build knows for a chart.
func verify(c Chart, packed []byte) error {
	known, err := digests()
	if err != nil {
		return err
	}
	got, err := render.ContentDigest(packed)
	if err != nil {
		return problem.Errorf(problem.Invalid, "see what the repository serves: helm pull "+c.Name, "the archive is not a chart: %v", err)
	}
	if want := known[c.String()]; got != want {
		return problem.Errorf(problem.Invalid, "do not install it; compare it with what upstream publishes",
			"the files of the chart have the digest %s, and this build expects %s", got, cmp.Or(want, "no such chart"))
	}
	return nil
}
