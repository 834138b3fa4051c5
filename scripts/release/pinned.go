package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// agentImage is the one that the manifest starts.
const agentImage = "pipeops/agent"

// manifests writes what `kubectl apply` takes, pinned to this version's image.
func (r *release) manifests(context.Context) error {
	for _, name := range []string{"agent.yaml", "service.yaml", "namespaces.yaml", "crds/pipeops.io_apps.yaml"} {
		content, err := os.ReadFile(filepath.Join(r.root, "deployments", filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if name == "agent.yaml" {
			if content, err = r.pinImage(content); err != nil {
				return err
			}
		}
		if err := r.add(path.Base(name), published.KindManifest, anywhere, text(content)); err != nil {
			return err
		}
	}
	return nil
}

// pinImage names the image by its digest; the tag is for those who read it.
func (r *release) pinImage(manifest []byte) ([]byte, error) {
	image, found := r.manifest.Image(agentImage)
	if !found { // a release of other programs
		return manifest, nil
	}
	return replaceOnce(manifest, "image: "+agentImage+":dev\n", fmt.Sprintf("image: %s:%s@%s\n", image.Name, r.version, image.Digest))
}

// replaceOnce wants to find what it replaces, once: a file that has changed its
// form is not to be published as it is.
func replaceOnce(content []byte, old, with string) ([]byte, error) {
	if n := bytes.Count(content, []byte(old)); n != 1 {
		return nil, fmt.Errorf("%q is there %d times, not once", strings.TrimSpace(old), n)
	}
	return bytes.Replace(content, []byte(old), []byte(with), 1), nil
}

// scripts writes the installers, each pinned to this version and to the checksum
// of what it downloads.
func (r *release) scripts(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./scripts/install", "-version", r.version,
		"-manifest", r.path("agent.yaml"), "-control-plane-url", r.controlPlane, "-keys", strings.Join(r.trusted, ","), "-output", r.publish())
	cmd.Dir = r.root
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the scripts: %w\n%s", err, said)
	}
	for _, name := range []string{"install.ps1", "install.sh", "join-worker.sh", "uninstall.sh"} {
		r.say("make %s", name)
		if err := r.take(name, published.KindScript, anywhere); err != nil {
			return err
		}
	}
	return nil
}
