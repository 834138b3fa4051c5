package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// What a chart's archive may hold. The charts that are packed in it in their turn count for
// themselves, and all of them against the process' memory.
const (
	maxUnpacked = 16 << 20 // with headers: a million empty files are small until they are unpacked
	maxFiles    = 5000
)

// unpack reads a chart's archive, and returns ContentDigest of it as well.
func unpack(data []byte) (c *chartv2.Chart, digest string, failed *Problem) {
	const fix = "pack it with helm package, and see what helm lint says"
	bad := func(err error) *Problem {
		if p, ok := errors.AsType[*problem.Error](err); ok {
			return &Problem{Code: p.Code, Message: p.Detail, Fix: p.Fix}
		}
		return wrong(fix, "this is not a chart: %v", err).Problem
	}
	if err := weigh(data); err != nil {
		return nil, "", bad(err)
	}
	archive.MaxDecompressedChartSize = maxUnpacked
	files, err := archive.LoadArchiveFiles(bytes.NewReader(data))
	if err != nil {
		return nil, "", bad(err)
	}
	if digest, err = digestOf(files); err != nil {
		return nil, "", bad(err)
	}
	if c, err = loader.LoadFiles(files); err != nil {
		return nil, "", bad(err)
	}
	if err := installable(c); err != nil {
		return nil, "", bad(err)
	}
	return c, digest, nil
}

// weigh looks at an archive without keeping anything of it.
func weigh(data []byte) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	weighed := &weighing{r: unzipped}
	files := tar.NewReader(weighed)
	for n := 1; ; n++ {
		h, err := files.Next()
		switch {
		case weighed.n > maxUnpacked:
			return tooHeavy("the chart, unpacked, has more than %d MiB", maxUnpacked>>20)
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, weighed) // what comes after the end
			if weighed.n > maxUnpacked {
				return tooHeavy("the chart, unpacked, has more than %d MiB", maxUnpacked>>20)
			}
			return err
		case err != nil:
			return err
		case n > maxFiles:
			return tooHeavy("the chart has more than %d files", maxFiles)
		}
		if err := entry(h); err != nil {
			return err
		}
	}
}

func tooHeavy(format string, args ...any) error {
	return problem.Errorf(problem.TooLarge, "use a smaller chart: Kubernetes keeps a release in 1 MiB", format, args...)
}

// weighing counts what is read, and ends past the limit.
type weighing struct {
	r io.Reader
	n int64
}

func (w *weighing) Read(p []byte) (int, error) {
	if w.n > maxUnpacked {
		return 0, errors.New("too much")
	}
	n, err := w.r.Read(p)
	w.n += int64(n)
	return n, err
}

// entry refuses an entry that is not a file of a chart.
func entry(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXHeader, tar.TypeXGlobalHeader:
	case tar.TypeSymlink, tar.TypeLink:
		return fmt.Errorf("%.200q is a link: helm package puts in the file itself", h.Name)
	default:
		return fmt.Errorf("%.200q is not a file", h.Name)
	}
	name := strings.ReplaceAll(h.Name, `\`, "/")
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return fmt.Errorf("%.200q is outside of the chart's folder", h.Name)
	}
	return nil
}

// installable refuses a chart that only others use, and one that lacks what it depends on.
func installable(c *chartv2.Chart) error {
	if t := c.Metadata.Type; t != "" && t != "application" {
		return fmt.Errorf("charts of type %s are not installed by themselves", t)
	}
	var missing []string
	for _, d := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(have *chartv2.Chart) bool { return have.Metadata.Name == d.Name }) {
			missing = append(missing, d.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it lacks its dependencies %s: put them into charts/ with helm dependency build", strings.Join(missing, ", "))
	}
	return nil
}
