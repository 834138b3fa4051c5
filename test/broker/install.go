package broker

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// binDir is where Debian keeps RabbitMQ's own scripts. Those in /usr/sbin are wrappers that require
// the system's RabbitMQ user and configuration.
const binDir = "/usr/lib/rabbitmq/bin"

//go:embed install.sh
var installScript string

// Installed reports whether RabbitMQ is installed.
func Installed() bool {
	_, err := os.Stat(binDir + "/rabbitmq-server")
	return err == nil
}

// Install installs Debian's package of RabbitMQ, without starting its service, unless it is already
// installed.
func Install(ctx context.Context, out io.Writer) error {
	if Installed() {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("RabbitMQ is not installed and there is no apt-get: install rabbitmq-server (%s) first", binDir)
	}
	say(out, "installing RabbitMQ from Debian (some 60 MB, once)")
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()

	args := []string{"sh", "-s"}
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(installScript)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install rabbitmq-server: %w; run 'apt-get install --no-install-recommends rabbitmq-server' as root to see why:\n%s",
			err, tail(log.String(), 12))
	}
	if !Installed() {
		return fmt.Errorf("installed rabbitmq-server, but it did not bring %s/rabbitmq-server: this Debian is too different", binDir)
	}
	say(out, "RabbitMQ installed in %s", time.Since(started).Round(time.Second))
	return nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
