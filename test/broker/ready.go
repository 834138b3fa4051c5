package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
)

// startTimeout is far more than the seconds that a start takes on a quiet machine.
const startTimeout = 8 * time.Minute

// TLSConfig verifies the broker by its own CA.
func (b *Broker) TLSConfig() *tls.Config {
	return &tls.Config{RootCAs: b.pool, MinVersion: tls.VersionTLS12}
}

// await returns when the broker can be used, or has exited, or took too long.
func (b *Broker) await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	gone := false
	err := poll(ctx, func(context.Context) (bool, error) {
		select {
		case <-exited:
			gone = true
			return true, nil
		default:
		}
		last = b.accepts(ctx)
		return last == nil, nil
	})
	switch {
	case gone:
		return fmt.Errorf("broker: the server ended while it started; its last words (%s):\n%s", b.LogDir(), b.lastWords())
	case err != nil:
		return fmt.Errorf("broker: not ready after %s (%w): %w; see %s", startTimeout, err, last, b.LogDir())
	}
	return nil
}

// accepts logs in over TLS as the control plane would.
func (b *Broker) accepts(ctx context.Context) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := amqp.DialConfig(b.URL(UserControlPlane), amqp.Config{
		TLSClientConfig: b.TLSConfig(),
		Dial: func(network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return c, c.SetDeadline(time.Now().Add(5 * time.Second))
		},
	})
	if err != nil {
		return err
	}
	return conn.CloseDeadline(time.Now().Add(5 * time.Second))
}

func (b *Broker) lastWords() string {
	for _, file := range []string{b.outputFile(), filepath.Join(b.LogDir(), "rabbitmq.log")} {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return debian.Tail(text)
		}
	}
	return "(none)"
}

// Ctl runs rabbitmqctl against the broker and returns its output.
func (b *Broker) Ctl(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "rabbitmqctl"), args...)
	cmd.Env = b.environ()
	cmd.Dir = b.dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("broker: rabbitmqctl: %w:\n%s", err, debian.Tail(out))
	}
	return out, nil
}
