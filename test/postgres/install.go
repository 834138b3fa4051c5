package postgres

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
)

//go:embed install.sh
var installScript string

// programs returns the folder of the newest server's programs. Debian keeps them apart from those
// of clients, a folder a version.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		newest := slices.MaxFunc(found, func(a, b string) int { return versionOf(a) - versionOf(b) })
		return filepath.Dir(newest), nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("there is no PostgreSQL server on this machine")
	}
	return filepath.Dir(initdb), nil
}

func versionOf(initdb string) int {
	version, _ := strconv.Atoi(strings.Split(initdb, "/")[4]) // 0 for what is none
	return version
}

// Install installs Debian's PostgreSQL, the version that belongs to its release,
// without a service, unless one is there already.
func Install(ctx context.Context, out io.Writer) error {
	there := func() bool {
		_, err := programs()
		return err == nil
	}
	return debian.Install(ctx, "PostgreSQL (some 50 MB, once)", "postgresql", installScript, there, func(text string) { debian.Say(out, "postgres", "%s", text) })
}
