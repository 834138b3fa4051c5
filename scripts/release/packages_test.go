package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// packagesAreWhole reads the packages as dpkg and tar do.
func packagesAreWhole(t *testing.T, dir string) {
	for format, magic := range map[string]string{"deb": "!<arch>\n", "rpm": "\xed\xab\xee\xdb", "apk": "\x1f\x8b"} {
		for _, arch := range []string{"amd64", "arm64"} {
			assert.True(t, strings.HasPrefix(string(read(t, dir, "pipeops-agent_1.2.3_linux_"+arch+"."+format)), magic), format)
		}
	}
	deb := filepath.Join(dir, "pipeops-agent_1.2.3_linux_arm64.deb")
	assert.Equal(t, "pipeops-agent 1.2.3 arm64", output(t, "dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture}", deb))
	into := t.TempDir()
	output(t, "dpkg-deb", "--extract", deb, into)
	unit := string(read(t, into, "usr/lib/systemd/system/pipeops-agent.service"))
	assert.Contains(t, unit, "\nExecStart=/usr/bin/pipeops-agent run ")
	assert.NotContains(t, unit, "/usr/local")
	assert.NotEmpty(t, read(t, into, "usr/bin/pipeops-agent"))
	assert.Equal(t, "/etc/pipeops/agent.env\n", output(t, "dpkg-deb", "--info", deb, "conffiles"), "an upgrade keeps the settings")
	assert.Contains(t, output(t, "dpkg-deb", "--contents", deb), "-rw------- root/root", "the settings are root's alone")

	content := output(t, "tar", "-tzf", filepath.Join(dir, "pipeops-agent_1.2.3_linux_amd64.apk"))
	assert.Contains(t, content, "etc/init.d/pipeops-agent\n")
	assert.NotContains(t, content, "systemd")
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	require.NoError(t, err, name)
	return string(out)
}

// formulasNameTheArchives with the checksums that they have.
func formulasNameTheArchives(t *testing.T, dir string) {
	brew := string(read(t, dir, "pipeops.rb"))
	var krew struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(read(t, dir, "pipeops-krew.yaml"), &struct {
		APIVersion, Kind string
		Metadata, Spec   any
	}{}))
	require.NoError(t, yaml.Unmarshal(read(t, dir, "pipeops-krew.yaml"), &krew))
	assert.Equal(t, "v1.2.3", krew.Spec.Version)
	require.Len(t, krew.Spec.Platforms, 2)
	for i, arch := range []string{"amd64", "arm64"} {
		name := fmt.Sprintf("pipeops_1.2.3_linux_%s.tar.gz", arch)
		sum, _, err := digestOf(filepath.Join(dir, name))
		require.NoError(t, err)
		url := repository + "/releases/download/v1.2.3/" + name
		assert.Contains(t, brew, fmt.Sprintf("      url %q\n      sha256 %q\n", url, sum))
		assert.Equal(t, url, krew.Spec.Platforms[i].URI)
		assert.Equal(t, sum, krew.Spec.Platforms[i].SHA256)
	}
	assert.NotContains(t, brew, "on_macos", "this release has no archive for it")
}

// TestPackages_Service: only formats with systemd have the control plane's.
func TestPackages_Service(t *testing.T) {
	r := &release{root: "../..", staging: t.TempDir()}
	for format, files := range map[string][]string{
		"deb": {
			"/usr/lib/systemd/system/pipeops-controlplane-backup.service", "/usr/lib/systemd/system/pipeops-controlplane-backup.timer",
			"/usr/lib/systemd/system/pipeops-controlplane.service", "/etc/pipeops/controlplane.env",
		}, "apk": nil,
	} {
		about := nfpmPackage{Name: "pipeops-controlplane"}
		require.NoError(t, packager{r}.service(&about, format))
		var packed []string
		for _, f := range about.Contents {
			packed = append(packed, f.Dst)
		}
		assert.Equal(t, files, packed, format)
	}
	about := nfpmPackage{Name: "pipeops-runner"}
	require.NoError(t, packager{r}.service(&about, "deb"))
	assert.Empty(t, about.Contents)
}

// TestFormulas_AllPlatforms has all of a release that Homebrew and Krew support.
func TestFormulas_AllPlatforms(t *testing.T) {
	r := release{version: "v1.2.3"}
	for _, name := range platforms {
		system, arch, _ := strings.Cut(name, "/")
		r.manifest.Files = append(r.manifest.Files, published.File{Name: system + "-" + arch, SHA256: arch, Kind: published.KindArchive, OS: system, Arch: arch})
	}
	var brew, krew strings.Builder
	require.NoError(t, brewTemplate.Execute(&brew, formulas{&r}.formula()))
	require.NoError(t, krewTemplate.Execute(&krew, formulas{&r}.formula()))
	assert.Equal(t, 4, strings.Count(brew.String(), "sha256"))
	assert.Contains(t, brew.String(), "  on_macos do\n    on_intel do\n")
	assert.NotContains(t, brew.String(), "windows")
	assert.Equal(t, len(platforms), strings.Count(krew.String(), "sha256"))
	assert.Contains(t, krew.String(), "bin: pipeops-agent.exe\n")
}

// TestManuals have pages and completions that do not depend on the day.
func TestManuals(t *testing.T) {
	suite.Release(t, "manual pages and completions of the three programs")
	for name, program := range map[string]programs.Program{
		"pipeops-agent": programs.Agent, "pipeops-runner": programs.Runner, "pipeops-controlplane": programs.ControlPlane,
	} {
		file, err := program.Build(t.Context())
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, describe(t.Context(), file, name, dir, stamp))
		page := output(t, "gunzip", "--stdout", filepath.Join(dir, "usr/share/man/man1", name+".1.gz"))
		assert.Contains(t, page, "Nov 2026")
		assert.NotContains(t, page, "Auto generated")
		for _, script := range shells {
			assert.Contains(t, string(read(t, dir, fmt.Sprintf(script, name))), name)
		}
	}
}
