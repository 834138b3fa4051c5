package parts

import (
	"context"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

// images packs the binaries that run as pods, each into an OCI image layout.
func (b *builder) images(ctx context.Context, binaries map[string]string) ([]string, error) {
	var layouts []string
	for _, img := range []struct{ name, ref string }{
		{"pause", PauseImage}, {"coredns", CoreDNSImage}, {"metricsserver", MetricsServerImage},
	} {
		binary := binaries[img.name]
		// The binary's directory is named after what it was made from.
		key, err := hashFiles(b.source, []string{"internal/image"}, filepath.Base(filepath.Dir(binary)), img.ref)
		if err != nil {
			return nil, err
		}
		name := "image." + img.name
		dir, err := b.cached(ctx, name, key, "image "+img.ref, 2*time.Second, func(_ context.Context, dir string) error {
			return pack(binary, img.name, img.ref, filepath.Join(dir, "layout"))
		})
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, filepath.Join(dir, "layout"))
	}
	return layouts, nil
}

func pack(binary, name, ref, dir string) error {
	img, err := image.Build(image.Spec{
		Binary: binary, Name: name, Uncompressed: true,
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
	})
	if err != nil {
		return err
	}
	index, err := image.Index(img)
	if err != nil {
		return err
	}
	return image.WriteLayout(dir, ref, index)
}
