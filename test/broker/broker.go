package broker

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// Options describe the broker.
type Options struct {
	// Name distinguishes brokers: a-z, 0-9 and '-'. Empty means "default".
	Name string
	// Out is where progress is shown; nil shows none.
	Out io.Writer
	// Listen are addresses to serve AMQP on besides 127.0.0.1. They are added to
	// the certificate's names.
	Listen []string

	// mortal brokers end when the process ends that started them.
	mortal bool
}

// Broker is a private RabbitMQ. Its methods may be called from any process of
// the user, one at a time.
type Broker struct {
	name  string
	dir   string
	out   io.Writer
	state *state
	pool  *x509.CertPool

	mortal bool
}

// Up creates the broker of that name if there is none, and starts it unless it runs. It returns
// once the broker accepts AMQP over TLS. The broker outlives the calling process.
func Up(ctx context.Context, opts Options) (*Broker, error) {
	if err := Install(ctx, opts.Out); err != nil {
		return nil, err
	}
	b, err := locate(opts.Name, opts.Out)
	if err != nil {
		return nil, err
	}
	b.mortal = opts.mortal
	unlock, err := b.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.prepare(ctx, opts); err != nil {
		return nil, fmt.Errorf("broker %s: %w", b.name, err)
	}
	return b, b.start(ctx)
}

// Open finds a broker that Up made. It fails with fs.ErrNotExist if there is none.
func Open(name string, out io.Writer) (*Broker, error) {
	b, err := locate(name, out)
	if err != nil {
		return nil, err
	}
	if b.state, err = readState(b.dir); err != nil {
		return nil, fmt.Errorf("broker %s: %w; bring it up first", b.name, err)
	}
	return b, b.loadPool()
}

func locate(name string, out io.Writer) (*Broker, error) {
	if name == "" {
		name = "default"
	}
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("broker name %q: only a-z, 0-9 and '-', at most 40 characters", name)
	}
	root, err := root()
	if err != nil {
		return nil, err
	}
	return &Broker{name: name, dir: filepath.Join(root, name), out: out}, nil
}

// prepare brings the folder to what the options ask for. A running broker that
// was made with others is stopped, to be started with the new ones.
func (b *Broker) prepare(ctx context.Context, opts Options) error {
	s, err := readState(b.dir)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = newState(ctx, filepath.Dir(b.dir), b.dir)
	}
	if err != nil {
		return err
	}
	b.state = s
	listen := slices.Sorted(slices.Values(opts.Listen))
	sans := slices.Concat([]string{"127.0.0.1", "localhost"}, listen)
	slices.Sort(sans)
	sans = slices.Compact(sans)

	if !slices.Equal(sans, s.SANs) || !slices.Equal(listen, s.Listen) {
		if err := b.stop(ctx); err != nil {
			return err
		}
		if err := selfsigned.Write(b.dir, sans...); err != nil {
			return err
		}
		s.SANs, s.Listen = sans, listen
		if err := s.write(b.dir); err != nil {
			return err
		}
	}
	return b.loadPool()
}

func (b *Broker) loadPool() error {
	pem, err := os.ReadFile(b.CAFile())
	if err != nil {
		return err
	}
	b.pool = x509.NewCertPool()
	if !b.pool.AppendCertsFromPEM(bytes.TrimSpace(pem)) {
		return fmt.Errorf("%s holds no certificate: bring the broker down and up", b.CAFile())
	}
	return nil
}

func (b *Broker) lock() (func(), error) {
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o700); err != nil {
		return nil, err
	}
	return lock(context.Background(), b.lockFile())
}

func (b *Broker) lockFile() string {
	return filepath.Join(filepath.Dir(b.dir), "."+b.name+".lock")
}

// Name returns the broker's name.
func (b *Broker) Name() string { return b.name }

// URL returns the amqps:// URL of a user, password included: do not print it.
func (b *Broker) URL(user string) string { return b.urlIn(user, b.address(), "") }

func (b *Broker) address() string { return "127.0.0.1:" + strconv.Itoa(b.state.AMQPSPort) }

// Port returns the port of AMQP over TLS.
func (b *Broker) Port() int { return b.state.AMQPSPort }

// Password returns a user's password for the management page.
func (b *Broker) Password(user string) string { return b.state.Passwords[user] }

// CAFile returns the CA's certificate in PEM.
func (b *Broker) CAFile() string { return filepath.Join(b.dir, "ca.crt") }

// CAPool holds the CA's certificate.
func (b *Broker) CAPool() *x509.CertPool { return b.pool }

// ManagementURL returns the RabbitMQ page.
func (b *Broker) ManagementURL() string {
	return "http://127.0.0.1:" + strconv.Itoa(b.state.ManagementPort) + "/"
}

// LogDir returns where the server's logs are.
func (b *Broker) LogDir() string { return filepath.Join(b.dir, "log") }

// Start starts a stopped or killed broker again, with its data and ports.
func (b *Broker) Start(ctx context.Context) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return b.start(ctx)
}

// Stop stops the broker in order and keeps its data.
func (b *Broker) Stop(ctx context.Context) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return b.stop(ctx)
}

// Kill ends the broker as a crash would: SIGKILL, nothing flushed.
func (b *Broker) Kill() error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return b.killAll(ctx)
}

// Down ends the broker and removes all that it had. Nothing is worth the time of
// an orderly stop any more.
func (b *Broker) Down(ctx context.Context) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	say(b.out, "removing %s", b.name)
	if err := b.killAll(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	return os.Remove(b.lockFile())
}

func say(out io.Writer, format string, args ...any) {
	if out != nil {
		_, _ = fmt.Fprintf(out, "broker: "+format+"\n", args...)
	}
}
