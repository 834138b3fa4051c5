package flags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// Broker describes how to reach RabbitMQ. Passwords come from files or the environment: every
// user of the machine can read a command line.
type Broker struct {
	url, urlFile, caFile, runnerURLFile string
}

var brokerURL = secretURL{
	flag: "broker-url", env: EnvBrokerURL, like: "amqps://host:5671/",
	fix: "put the URL into a file and name it with --broker-url-file, or into " + EnvBrokerURL,
}

// Add adds the flags of the serving commands.
func (b *Broker) Add(f *pflag.FlagSet) {
	b.AddOwn(f)
	f.StringVar(&b.runnerURLFile, "runner-broker-url-file", "", "file with the RabbitMQ URL for Runners, which runner create puts into their credentials")
}

// AddOwn adds the flags for our own connection to the broker.
func (b *Broker) AddOwn(f *pflag.FlagSet) {
	f.StringVar(&b.url, "broker-url", "", "RabbitMQ URL without a password; separate several with commas")
	f.StringVar(&b.urlFile, "broker-url-file", "", "file with RabbitMQ URLs, amqps://user:password@host:5671/, one per line")
	f.StringVar(&b.caFile, "broker-ca", "", "file with the CA of RabbitMQ's certificate (default: the machine's CAs)")
	// The environment may hold a password, the flag may not: Apply distinguishes them.
	_ = f.SetAnnotation("broker-url", notFromEnvironment, []string{})
}

// Apply writes the broker into the configuration.
func (b *Broker) Apply(cfg *controlplane.Config) error {
	var errs []error
	var err error
	cfg.BrokerURLs, cfg.BrokerTLS, err = b.read()
	cfg.BrokerReread = b.read
	errs = append(errs, err)
	if b.runnerURLFile != "" {
		text, err := ReadSecret("--runner-broker-url-file", b.runnerURLFile)
		if err == nil {
			if err = rabbitmq.CheckURLs(strings.Split(strings.TrimSpace(text), ",")); err != nil {
				err = fmt.Errorf("--runner-broker-url-file: %w", err)
			}
		}
		errs = append(errs, err)
		cfg.RunnerBroker = datadir.RunnerBroker{URLFile: b.runnerURLFile, CAFile: b.caFile}
	}
	return errors.Join(errs...)
}

// read returns what the files have now. The TLS configuration is nil for the machine's CAs.
func (b *Broker) read() ([]string, *tls.Config, error) {
	text, err := brokerURL.read(b.url, b.urlFile)
	if b.caFile == "" {
		return split(text), nil, err
	}
	pool, caErr := LoadCAs("--broker-ca", b.caFile)
	return split(text), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, errors.Join(err, caErr)
}

// LoadCAs reads the CAs, which are then the only trusted ones.
func LoadCAs(name, file string) (*x509.CertPool, error) {
	conf, err := (&tlsfiles.Files{CA: file, CAName: name}).Config()
	if err != nil {
		return nil, err
	}
	return conf.RootCAs, nil
}
