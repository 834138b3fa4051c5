// Package buildkit makes an image of rootless BuildKit for tests, with the layout of upstream's
// moby/buildkit:rootless, which is not available everywhere. It contains the same programs from
// their own modules (test/buildkit/tools pins them), with runc, newuidmap and a shell from the
// distribution. A build's pod starts it with the command line for upstream's image.
package buildkit

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

const (
	user     = 1000
	programs = "buildctl buildkitd rootlesskit"
	// script starts BuildKit for one build; it comes with buildctl's module.
	script = "buildctl-daemonless.sh"
)

// packages are Debian's, from which some files are taken; none of them is installed.
var packages = []string{"busybox-static", "uidmap"}

// applets are the commands that the script calls.
var applets = []string{"sh", "awk", "cat", "expr", "id", "kill", "mktemp", "rm", "sleep"}

// Image returns the image. Its parts are built once and kept in the tests' cache: that takes 2 to 4
// minutes on two cores the first time.
func Image(ctx context.Context) (v1.Image, error) {
	dir, err := Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("make BuildKit's image: %w", err)
	}
	content, err := layer(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("make BuildKit's image: %w", err)
	}
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(content, types.OCIUncompressedLayer))
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, configOf(img))
}

func configOf(img v1.Image) *v1.ConfigFile {
	file, err := img.ConfigFile()
	if err != nil { // it is in memory
		panic(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"rootlesskit", "buildkitd"},
		Env: []string{
			"PATH=/usr/bin:/bin", "HOME=/home/user", "USER=user", "XDG_RUNTIME_DIR=/run/user/1000", "TMPDIR=/home/user/.local/tmp",
		},
	}
	return file
}

// Parts returns the cache directory with the programs, and the packages' files in root.
func Parts(ctx context.Context) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	tools := inputs.Path("test/buildkit/tools")
	pins, err := os.ReadFile(filepath.Join(tools, "go.sum"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(pins, runtime.GOARCH+runtime.Version()...))
	base := filepath.Join(cache, "pipeops-test", "buildkit")
	dir = filepath.Join(base, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Wait(ctx, base+".lock", nil) // another process may be making it
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	making := dir + ".making"
	if err := errors.Join(os.RemoveAll(making), os.MkdirAll(making, 0o755)); err != nil {
		return "", err
	}
	if err := errors.Join(compile(ctx, tools, making), unpack(ctx, making)); err != nil {
		return "", err
	}
	return dir, os.Rename(making, dir)
}

func compile(ctx context.Context, tools, dir string) error {
	if err := run(ctx, tools, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", dir+"/", "tool"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/moby/buildkit")
	cmd.Dir = tools
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find BuildKit's module: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "examples", "buildctl-daemonless", script))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, script), text, 0o755)
}

func unpack(ctx context.Context, dir string) error {
	if err := run(ctx, dir, nil, "apt-get", append([]string{"download", "-q"}, packages...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if err := errors.Join(run(ctx, dir, nil, "dpkg", "-x", deb, filepath.Join(dir, "root")), os.Remove(deb)); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

var library = regexp.MustCompile(`(/lib\S*\.so\S*)`)

// libraries returns the libraries with which the distribution's programs are linked.
func libraries(ctx context.Context, programs ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", programs...).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	found := library.FindAllString(string(out), -1)
	slices.Sort(found)
	return slices.Compact(found), nil
}

func layer(ctx context.Context, dir string) ([]byte, error) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return nil, err
	}
	w := &writer{buf: &bytes.Buffer{}}
	w.tar = tar.NewWriter(w.buf)
	uidmap, gidmap := filepath.Join(dir, "root/usr/bin/newuidmap"), filepath.Join(dir, "root/usr/bin/newgidmap")
	for _, d := range []string{"bin", "etc", "etc/ssl", "etc/ssl/certs", "lib", "lib64", "usr", "usr/bin", "run", "run/user", "proc", "sys", "dev"} {
		w.dir(d, 0o755, 0)
	}
	w.dir("tmp", 0o1777, 0)
	for _, d := range []string{"home", "home/user", "home/user/.local", "home/user/.local/tmp", "home/user/.local/share", "home/user/.local/share/buildkit", "run/user/1000"} {
		w.dir(d, 0o755, user)
	}
	for _, p := range append(strings.Fields(programs), script) {
		w.file("usr/bin/"+p, filepath.Join(dir, p), 0)
	}
	w.file("usr/bin/runc", runc, 0)
	// With file capabilities and not as setuid root: the mapping must be written by the creator of
	// the user namespace, or by a process with more rights than a pod gives.
	w.file("usr/bin/newuidmap", uidmap, unix.CAP_SETUID)
	w.file("usr/bin/newgidmap", gidmap, unix.CAP_SETGID)
	w.file("bin/busybox", filepath.Join(dir, "root/bin/busybox"), 0)
	for _, a := range applets {
		w.entry(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777}, nil)
	}
	libs, err := libraries(ctx, runc, uidmap)
	if err != nil {
		return nil, err
	}
	for _, lib := range libs {
		w.file(strings.TrimPrefix(lib, "/"), lib, 0)
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", "etc/group": "root:x:0:\nuser:x:1000:\n",
		"etc/subuid": "user:100000:65536\n", "etc/subgid": "user:100000:65536\n",
	} {
		w.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, []byte(text))
	}
	return w.buf.Bytes(), errors.Join(w.err, w.tar.Close())
}

// writer writes a layer, and keeps the first error.
type writer struct {
	buf *bytes.Buffer
	tar *tar.Writer
	err error
}

func (w *writer) dir(name string, mode int64, owner int) {
	w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

// file writes a program, with a capability if one is given.
func (w *writer) file(name, from string, capability int) {
	content, err := os.ReadFile(from)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", name, err)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(fs.FileMode(0o755)), Size: int64(len(content)), Format: tar.FormatPAX}
	if capability != 0 {
		// struct vfs_cap_data, revision 2, effective (linux/capability.h).
		value := binary.LittleEndian.AppendUint32(nil, 0x02000001)
		value = binary.LittleEndian.AppendUint32(value, 1<<capability)
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(append(value, make([]byte, 12)...))}
	}
	w.entry(h, content)
}

func (w *writer) entry(h *tar.Header, content []byte) {
	if w.err != nil {
		return
	}
	if w.err = w.tar.WriteHeader(h); w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}
