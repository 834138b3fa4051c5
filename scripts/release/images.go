package main

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// images are those of a release's programs.
type images struct{ *release }

// run builds the images of the programs that have one, for all Linux platforms at once.
func (r images) run(context.Context) error {
	authorities, err := r.caBundle()
	if err != nil {
		return err
	}
	for _, p := range r.programs {
		if p.image == "" {
			continue
		}
		index, err := r.index(p, authorities)
		if err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-image_%s.tar", p.name, r.number())
		r.say("make %s: %s:%s@%s", file, p.image, r.version, digest)
		if err := image.WriteArchive(r.path(file), p.image+":"+r.version, index); err != nil {
			return err
		}
		if err := r.take(file, published.KindImage, anywhere); err != nil {
			return err
		}
		r.manifest.Images = append(r.manifest.Images, published.Image{Name: p.image, Digest: digest.String()})
	}
	return nil
}

func (r images) index(p program, authorities string) (v1.ImageIndex, error) {
	var all []v1.Image
	for _, platform := range r.platforms {
		if platform.OS != "linux" {
			continue
		}
		img, err := image.Build(image.Spec{Binary: r.bin(p, platform), Name: p.name, Platform: platform,
			CABundle: authorities, DataDir: p.dataDir, Labels: map[string]string{
				image.LabelTitle: p.name, image.LabelVersion: r.version, image.LabelRevision: r.commit,
				image.LabelSource: repository,
			}})
		if err != nil {
			return nil, err
		}
		all = append(all, img)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("image of %s: there is none without a Linux platform (fix: --platform linux/amd64)", p.name)
	}
	return image.Index(all...)
}
