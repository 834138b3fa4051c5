package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

// brokerFlags describe how to reach RabbitMQ. Passwords come from files or the environment: every
// user of the machine can read a command line.
type brokerFlags struct {
	url, urlFile, caFile, runnerURLFile string
}

var brokerURL = secretURL{
	flag: "broker-url", env: envPrefix + "BROKER_URL", like: "amqps://host:5671/",
	fix: "put the URL into a file and name it with --broker-url-file, or into " + envPrefix + "BROKER_URL",
}

// add adds the flags of the serving commands.
func (b *brokerFlags) add(f *pflag.FlagSet) {
	b.addOwn(f)
	f.StringVar(&b.runnerURLFile, "runner-broker-url-file", "", "file with the RabbitMQ URL for Runners, which runner create puts into their credentials")
}

// addOwn adds the flags for our own connection to the broker.
func (b *brokerFlags) addOwn(f *pflag.FlagSet) {
	f.StringVar(&b.url, "broker-url", "", "RabbitMQ URL without a password; separate several with commas")
	f.StringVar(&b.urlFile, "broker-url-file", "", "file with RabbitMQ URLs, amqps://user:password@host:5671/, one per line")
	f.StringVar(&b.caFile, "broker-ca", "", "file with the CA of RabbitMQ's certificate (default: the machine's CAs)")
	// The environment may hold a password, the flag may not: apply distinguishes them.
	_ = f.SetAnnotation("broker-url", notFromEnvironment, []string{})
}

func (b *brokerFlags) apply(cfg *controlplane.Config) error {
	var errs []error
	urls, err := b.urls()
	errs = append(errs, err)
	cfg.BrokerURLs = urls
	if b.caFile != "" {
		pool, err := loadCAs("--broker-ca", b.caFile)
		errs = append(errs, err)
		cfg.BrokerTLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	if b.runnerURLFile != "" {
		_, err := readSecret("--runner-broker-url-file", b.runnerURLFile)
		errs = append(errs, err)
		cfg.RunnerBroker = controlplane.RunnerBroker{URLFile: b.runnerURLFile, CAFile: b.caFile}
	}
	return errors.Join(errs...)
}

func (b *brokerFlags) urls() ([]string, error) {
	text, err := brokerURL.read(b.url, b.urlFile)
	return split(text), err
}

// loadCAs reads the CAs, which are then the only trusted ones.
func loadCAs(name, file string) (*x509.CertPool, error) {
	return addCAs(x509.NewCertPool(), name, file)
}

func addCAs(pool *x509.CertPool, name, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s holds no certificate in PEM", name, file)
	}
	return pool, nil
}
