package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
	if _, err := programs(); err == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("PostgreSQL is not installed and there is no apt-get: install its server first (initdb has to be in PATH)")
	}
	say(out, "installing PostgreSQL from Debian (some 50 MB, once)")
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()

	args := []string{"sh", "-s"}
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(installScript)
	cmd.WaitDelay = 5 * time.Second
	if log, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install postgresql: %w; run 'apt-get install --no-install-recommends postgresql' as root to see why:\n%s", err, tail(log))
	}
	if _, err := programs(); err != nil {
		return fmt.Errorf("installed postgresql, but: %w: this Debian is too different", err)
	}
	say(out, "PostgreSQL installed in %s", time.Since(started).Round(time.Second))
	return nil
}

func tail(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

func say(out io.Writer, format string, args ...any) {
	if out != nil {
		_, _ = fmt.Fprintf(out, "postgres: "+format+"\n", args...)
	}
}
