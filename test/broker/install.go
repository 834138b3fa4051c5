package broker

import (
	"context"
	_ "embed"
	"io"
	"os"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
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
	return debian.Install(ctx, "RabbitMQ (some 60 MB, once)", "rabbitmq-server", installScript, Installed, func(text string) { debian.Say(out, "broker", "%s", text) })
}
