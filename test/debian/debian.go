// Package debian has what private servers of Debian's packages need.
package debian

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const installTimeout = 10 * time.Minute

// Install runs a script as root that installs a package, unless it is there already.
func Install(ctx context.Context, what, pkg, script string, there func() bool, say func(string)) error {
	if there() {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("there is no apt-get: install %s first", pkg)
	}
	say("installing " + what + " from Debian")
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	args := []string{"sh", "-s"}
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(script)
	cmd.WaitDelay = 5 * time.Second
	if log, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w; run 'apt-get install --no-install-recommends %[1]s' as root to see why:\n%[3]s", pkg, err, Tail(log))
	}
	if !there() {
		return fmt.Errorf("installed %s, but its programs are not where they are expected: this Debian is too different", pkg)
	}
	say("installed in " + time.Since(started).Round(time.Second).String())
	return nil
}

// Tail returns the last lines of what a program printed.
func Tail(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// FreePort looks below the kernel's ephemeral range for a port that is not taken, so that no
// outgoing connection takes the port while the server is stopped.
func FreePort(ctx context.Context, taken map[int]bool) (int, error) {
	const from, count = 20000, 12000
	for range 200 {
		n, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return 0, err
		}
		port := from + int(n.Int64())
		// All interfaces, so that an extra listener fits as well.
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port)) // for a moment
		if err == nil && !taken[port] {
			return port, l.Close()
		}
		if err == nil {
			_ = l.Close()
		}
	}
	return 0, fmt.Errorf("found no free port between %d and %d on this machine", from, from+count)
}
