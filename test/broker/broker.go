package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// prefix is in the names of the brokers' folders.
const prefix = "broker-"

// Broker is a private RabbitMQ. Its methods may be called one at a time.
type Broker struct {
	dir       string
	unlock    func()
	out       io.Writer
	pool      *x509.CertPool
	cookie    string            // Erlang's shared secret
	passwords map[string]string // by user

	amqpsPort, managementPort, distPort, epmdPort int
}

// Up installs RabbitMQ if needed, and starts a new broker. It returns once the broker accepts AMQP
// over TLS. The broker ends with the calling process. The progress is shown in out, which may be
// nil.
func Up(ctx context.Context, out io.Writer) (*Broker, error) {
	if err := Install(ctx, out); err != nil {
		return nil, err
	}
	b := &Broker{out: out, cookie: rand.Text(), passwords: map[string]string{
		UserControlPlane: rand.Text(), UserRunner: rand.Text(), userAdmin: rand.Text(),
	}}
	if err := b.prepare(ctx); err != nil {
		return nil, fmt.Errorf("make a broker: %w", err)
	}
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Down(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// prepare chooses ports, and makes the folder with the certificates.
func (b *Broker) prepare(ctx context.Context) (err error) {
	taken := map[int]bool{}
	for _, port := range []*int{&b.amqpsPort, &b.managementPort, &b.distPort, &b.epmdPort} {
		if *port, err = debian.FreePort(ctx, taken); err != nil {
			return err
		}
		taken[*port] = true
	}
	cache, err := os.UserCacheDir() // honours XDG_CACHE_HOME
	if err != nil {
		return fmt.Errorf("find the cache folder: %w; set XDG_CACHE_HOME", err)
	}
	base := filepath.Join(cache, "pipeops-test")
	if err := os.MkdirAll(base, 0o700); err != nil {
		return err
	}
	if b.dir, b.unlock, err = debian.Folder(base, prefix); err != nil {
		return err
	}
	if err := selfsigned.Write(b.dir, "127.0.0.1", "localhost"); err != nil {
		return err
	}
	pem, err := os.ReadFile(b.CAFile())
	if err != nil {
		return err
	}
	b.pool = x509.NewCertPool()
	b.pool.AppendCertsFromPEM(bytes.TrimSpace(pem))
	return os.Mkdir(b.LogDir(), 0o700)
}

// URL returns the amqps:// URL of a user, password included: do not print it.
func (b *Broker) URL(user string) string { return b.urlIn(user, b.address(), "") }

func (b *Broker) address() string { return "127.0.0.1:" + strconv.Itoa(b.amqpsPort) }

// Port returns the port of AMQP over TLS.
func (b *Broker) Port() int { return b.amqpsPort }

// Password returns a user's password for the management page.
func (b *Broker) Password(user string) string { return b.passwords[user] }

// CAFile returns the CA's certificate in PEM.
func (b *Broker) CAFile() string { return filepath.Join(b.dir, "ca.crt") }

// CAPool holds the CA's certificate.
func (b *Broker) CAPool() *x509.CertPool { return b.pool }

// ManagementURL returns the RabbitMQ page.
func (b *Broker) ManagementURL() string {
	return "http://127.0.0.1:" + strconv.Itoa(b.managementPort) + "/"
}

// LogDir returns where the server's logs are.
func (b *Broker) LogDir() string { return filepath.Join(b.dir, "log") }

// Kill ends the broker as a crash would: SIGKILL, nothing flushed but RabbitMQ's knowledge of its
// queues. RabbitMQ 3.10 writes that late, and a quorum queue that is young when it dies comes back
// without a leader (docs/adr/0045).
func (b *Broker) Kill(ctx context.Context) error {
	if _, err := b.Ctl(ctx, "eval", "dets:sync(ra_directory_reverse)."); err != nil {
		return err
	}
	return b.killAll(ctx)
}

// Down ends the broker and removes all that it had. Nothing is worth the time of
// an orderly stop any more.
func (b *Broker) Down(ctx context.Context) error {
	b.say("removing it")
	if err := b.killAll(ctx); err != nil {
		return err
	}
	defer b.unlock()
	return os.RemoveAll(b.dir)
}

func (b *Broker) say(format string, args ...any) { debian.Say(b.out, "broker", format, args...) }
