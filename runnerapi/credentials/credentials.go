// Package credentials has what a Runner proves its identity by: its credentials file, the grant in
// its certificate, and the names in the certificates of Runners, agents and the control plane.
package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// maxCredentials bounds a credentials file, which holds a few certificates and URLs.
const maxCredentials = 256 << 10

// Credentials is all that a Runner needs. `pipeops-controlplane runner create` writes it into one
// file. It holds a private key and a broker password: never print it.
type Credentials struct {
	// Runner is the name by which the agents' audit knows this Runner.
	Runner string `json:"runner"`
	// ControlPlane is the URL of the control plane's HTTPS API.
	ControlPlane string `json:"controlPlane"`
	// Edge is the host:port at which all agents are reached.
	Edge         string `json:"edge"`
	AgentsDomain string `json:"agentsDomain"`
	TrustDomain  string `json:"trustDomain"`
	// CA, Certificate and Key are PEM.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// Endorsement is PEM: a certificate of a customer's CA for the same key, and what leads to
	// that CA, where agents ask for one. The Runner presents it beside its own.
	Endorsement string `json:"endorsement,omitempty"`
	// Broker is empty where announcements are not to be had.
	Broker Broker `json:"broker,omitzero"`
}

// Broker describes where announcements come from.
type Broker struct {
	// URL is amqps://user:password@host:port/vhost.
	URL string `json:"url"`
	// CA is PEM; empty means the machine's trusted CAs.
	CA string `json:"ca,omitempty"`
}

// Load reads a credentials file. It refuses a file that other users can read.
func Load(path string) (Credentials, error) {
	const again = "name the file that `pipeops-controlplane runner create NAME -o FILE` wrote"
	text, err := boundedfile.Secret(path, maxCredentials)
	if errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, fmt.Errorf("credentials file %s does not exist (fix: %s)", path, again)
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("credentials file: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return Credentials{}, fmt.Errorf("credentials file %s: %w (fix: %s)", path, err, again)
	}
	return c, nil
}

// Parse decodes and checks the text of a credentials file. Its errors name the field and
// never quote a value.
func Parse(text []byte) (Credentials, error) {
	var c Credentials
	if len(text) > maxCredentials {
		return c, errors.New("it is too large")
	}
	if err := decode.Strict(text, &c); err != nil {
		return Credentials{}, notRunners(text, err)
	}
	if err := c.validate(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}

// notRunners names a mix-up of two files, rather than each field in which they differ.
func notRunners(text []byte, err error) error {
	var other struct{ Operator string }
	if json.Unmarshal(text, &other) == nil && other.Operator != "" {
		return errors.New("it has an operator's credentials, which are for pipeops-controlplane, and not a Runner's")
	}
	return fmt.Errorf("it is not a Runner's credentials: %w", err)
}

func (c *Credentials) validate() error {
	for _, field := range [][2]string{{"runner", c.Runner}, {"controlPlane", c.ControlPlane}, {"edge", c.Edge},
		{"agentsDomain", c.AgentsDomain}, {"trustDomain", c.TrustDomain}} {
		if field[1] == "" {
			return fmt.Errorf("%s: is missing", field[0])
		}
	}
	if _, err := c.TLSCertificate(); err != nil {
		return err
	}
	if _, err := c.Roots(); err != nil {
		return err
	}
	if c.Broker.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(c.Broker.CA)) {
		return errors.New("broker.ca: holds no certificate")
	}
	return nil
}

// TLSCertificate returns the Runner's certificate with its key and its endorsement.
func (c *Credentials) TLSCertificate() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err != nil {
		return tls.Certificate{}, errors.New("certificate and key: are missing or do not belong together")
	}
	if err := c.endorse(&cert); err != nil {
		return tls.Certificate{}, err
	}
	return cert, nil
}

// Roots returns the control plane's CA and its successors: each is signed by the one before it.
func (c *Credentials) Roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !trustanchor.Append(pool, []byte(c.CA)) {
		return nil, errors.New("ca: holds no certificate")
	}
	return pool, nil
}

// Encode returns the content of a credentials file. It is as secret as the key in it.
func (c *Credentials) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("credentials file: %w", err)
	}
	return append(text, '\n'), nil
}

// Write writes the credentials atomically to a file that only its owner can read. It replaces an
// existing file.
func (c *Credentials) Write(path string) error {
	text, err := c.Encode()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, text); err != nil {
		return fmt.Errorf("credentials file: %w", err)
	}
	return nil
}

// String keeps the secrets out of formatted output.
func (c Credentials) String() string { return "credentials of Runner " + c.Runner }

// GoString keeps the secrets out of %#v.
func (c Credentials) GoString() string { return c.String() }
