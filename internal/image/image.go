// Package image builds OCI images from static Go binaries without a container
// engine: scratch with one layer, non-root, and the same digest for the same
// input on any machine. It is not a general image builder; anything that needs
// a base image or a RUN step belongs in a Dockerfile.
package image

import (
	"fmt"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// UserID is the user and group the image runs as. It is the one that the
// distroless images call nonroot, so policies written for those fit.
const UserID = 65532

// Labels that registries and scanners read.
const (
	LabelVersion  = "org.opencontainers.image.version"
	LabelSource   = "org.opencontainers.image.source"
	LabelRevision = "org.opencontainers.image.revision"
	LabelTitle    = "org.opencontainers.image.title"
)

// Epoch stamps every file and the image itself: a build time would give each
// build another digest.
var Epoch = time.Unix(0, 0).UTC()

// Spec describes the content of an image.
type Spec struct {
	// Binary is the path of the static executable on this machine.
	Binary string
	// Name is the executable's name within the image; it lies in the root.
	Name string
	// Platform is what the binary was built for.
	Platform v1.Platform
	// Labels are added to the image's configuration.
	Labels map[string]string
	// CABundle is a file of certificate authorities to trust, or empty. See
	// SystemCABundle.
	CABundle string
	// DataDir is an absolute path at which the program keeps its data, or empty.
	// The image has it as the program's user's own, and a new volume of a container
	// engine that is mounted there gets the same owner.
	DataDir string
	// Uncompressed keeps the layer as it is: larger, but at hand at once, which
	// suits an image that only travels to a test cluster on the same machine.
	Uncompressed bool
}

// Build makes the image.
func Build(spec Spec) (v1.Image, error) {
	layer, err := newLayer(spec)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", spec.Binary, err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: "pipeops-vm-agent internal/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("image of %s: add layer: %w", spec.Binary, err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image of %s: read configuration: %w", spec.Binary, err)
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: Epoch}
	file.OS, file.Architecture, file.Variant = spec.Platform.OS, spec.Platform.Architecture, spec.Platform.Variant
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", UserID, UserID),
		Entrypoint: []string{path.Join("/", spec.Name)},
		WorkingDir: "/",
		Env:        []string{"PATH=/", "HOME=/tmp"},
		Labels:     spec.Labels,
	}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, fmt.Errorf("image of %s: set configuration: %w", spec.Binary, err)
	}
	return img, nil
}

// Index joins images for several platforms under one name.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := emptyIndex()
	for _, img := range images {
		file, err := img.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("image index: read configuration: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: file.Platform()},
		})
	}
	return index, nil
}
