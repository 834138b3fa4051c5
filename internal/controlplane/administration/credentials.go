package administration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// maxCredentials bounds a credentials file: a certificate with its chain, a key and two CAs.
const maxCredentials = 256 << 10

// theFile is the fix for a file that is not there, or holds something else.
const theFile = "name the file that `pipeops-controlplane operator create NAME -o FILE` wrote"

// Credentials are all that an operator needs to call the operator API. They are as secret as the
// key in them.
type Credentials struct {
	Operator     string `json:"operator"`
	ControlPlane string `json:"controlPlane" doc:"URL of the control plane's HTTPS port."`
	TrustDomain  string `json:"trustDomain"`
	CA           string `json:"ca" doc:"PEM: the control plane's CA."`
	Certificate  string `json:"certificate" doc:"PEM: the certificate, then what leads to the CA."`
	Key          string `json:"key" doc:"PEM: the certificate's key, a secret."`
}

// LoadCredentials reads a credentials file, which only its owner may be able to read.
func LoadCredentials(path string) (Credentials, error) {
	text, err := boundedfile.Secret(path, maxCredentials)
	if errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, fmt.Errorf("credentials file %s does not exist (fix: %s)", path, theFile)
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("operator's credentials: %w", err)
	}
	c, err := ParseCredentials(text)
	if err != nil {
		return Credentials{}, fmt.Errorf("operator's credentials: %s: %w (fix: %s)", path, err, theFile)
	}
	return c, nil
}

// ParseCredentials decodes and checks the text of a credentials file. Its errors quote no value.
func ParseCredentials(text []byte) (Credentials, error) {
	var c Credentials
	if len(text) > maxCredentials {
		return c, errors.New("it is too large")
	}
	if err := decode.Strict(text, &c); err != nil {
		return Credentials{}, notOperators(text, err)
	}
	for _, field := range [][2]string{{"operator", c.Operator}, {"controlPlane", c.ControlPlane}, {"trustDomain", c.TrustDomain}} {
		if field[1] == "" {
			return Credentials{}, fmt.Errorf("%s: is missing", field[0])
		}
	}
	if _, err := c.TLSConfig(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}

// notOperators names a mix-up of two files, rather than each field in which they differ.
func notOperators(text []byte, err error) error {
	var other struct{ Runner string }
	if json.Unmarshal(text, &other) == nil && other.Runner != "" {
		return errors.New("it has a Runner's credentials, which are for pipeops-runner, and not an operator's")
	}
	return fmt.Errorf("it is not an operator's credentials: %w", err)
}

// TLSConfig returns the configuration of connections to the control plane.
func (c *Credentials) TLSConfig() (*tls.Config, error) {
	cert, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err != nil {
		return nil, errors.New("certificate and key: are missing or do not belong together")
	}
	roots := x509.NewCertPool()
	if !trustanchor.Append(roots, []byte(c.CA)) {
		return nil, errors.New("ca: holds no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}}, nil
}

// Encode returns the content of a credentials file.
func (c *Credentials) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// Write writes the credentials to a file that only its owner can read. It replaces an existing
// file.
func (c *Credentials) Write(path string) error {
	text, err := c.Encode()
	if err == nil {
		err = atomicfile.Write(path, text)
	}
	if err != nil {
		return fmt.Errorf("operator's credentials: %w", err)
	}
	return nil
}

// Replace writes the credentials to a file that has earlier ones. Where that is a link, it stays
// one.
func (c *Credentials) Replace(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("operator's credentials: %w", err)
	}
	return c.Write(target)
}

// String keeps the secrets out of formatted output.
func (c Credentials) String() string { return "credentials of operator " + c.Operator }

// GoString keeps the secrets out of %#v.
func (c Credentials) GoString() string { return c.String() }
