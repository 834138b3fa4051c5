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

// overlay returns where a file of the repository is that was pinned to this version.
func (r *release) overlay(name string) string {
	return filepath.Join(r.staging, "overlay", filepath.FromSlash(name))
}

// pin writes a file of the repository with changes, each of which must match once, and adds it to
// the archives instead of the original.
func (r *release) pin(name string, changes ...[2]string) (content []byte, err error) {
	content, err = os.ReadFile(filepath.Join(r.root, filepath.FromSlash(name)))
	for _, change := range changes {
		if err == nil {
			content, err = replaceOnce(content, change[0], change[1])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(r.overlay(name)), 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return nil, err
	}
	return content, write(r.overlay(name), text(content))
}

// manifests writes what `kubectl apply` takes, and the compose file, pinned to this
// version's images.
func (r *release) manifests(context.Context) error {
	for _, name := range []string{
		"agent.yaml", "service.yaml", "self-update.yaml", "crds/pipeops.io_apps.yaml", "sources.yaml",
		"node-rights.yaml", "manifest-rights.yaml", "kubernetes-api-rights.yaml", "build-rights.yaml", "service-account-token.yaml",
	} {
		var changes [][2]string
		if name == "agent.yaml" {
			changes = r.imagePin()
		}
		content, err := r.pin(path.Join("deployments", name), changes...)
		if err != nil {
			return err
		}
		if err := r.add(path.Base(name), published.KindManifest, anywhere, text(content)); err != nil {
			return err
		}
	}
	_, err := r.pin("deployments/compose/compose.yaml", [2]string{"${PIPEOPS_VERSION:-dev}", "${PIPEOPS_VERSION:-" + r.version + "}"})
	return err
}

// imagePin names the image by its digest; the tag is for readers.
func (r *release) imagePin() [][2]string {
	image, found := r.manifest.Image(agentImage)
	if !found { // a release of other programs
		return nil
	}
	return [][2]string{{"image: " + agentImage + ":dev\n", fmt.Sprintf("image: %s:%s@%s\n", image.Name, r.version, image.Digest)}}
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
	args := []string{
		"run", "./scripts/install", "-version", r.version, "-control-plane-url", r.controlPlane, "-keys", strings.Join(r.trusted, ","),
		"-output", r.publish(), "-pin", r.path("agent.yaml"),
	}
	for _, platform := range r.platforms {
		if platform.OS == "linux" { // what `install.sh server` installs
			args = append(args, "-pin", r.path(archiveName(r.number(), platform)+".tar.gz"))
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
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
