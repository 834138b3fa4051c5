// Package tlsfiles reads certificates of clients' TLS from files, and again while a program runs: a
// new CA or certificate applies to new connections, without a restart. It imports none of our
// parties, so that every wire may import it.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// maxFile bounds each file, in bytes.
const maxFile = 4 << 20

// Source returns a client's configuration as it is now: the same one while nothing changed. A
// caller must not change it. A nil Source is the machine's CAs.
type Source func() (*tls.Config, error)

// Fixed returns the source of CAs that do not change.
func Fixed(roots *x509.CertPool) Source {
	conf := configOf(roots)
	return func() (*tls.Config, error) { return conf, nil }
}

func configOf(roots *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}

// Files are PEM files. Those without a name are left out.
type Files struct {
	// CA has the CAs of servers, in place of the machine's or in addition to them.
	CA       string
	Machines bool
	// Cert and Key are the client's own.
	Cert, Key string
	// CAName, CertName and KeyName are the settings that name the files, for errors.
	CAName, CertName, KeyName string

	mu    sync.Mutex
	texts [3]string
	conf  *tls.Config
}

// Config implements Source.
func (f *Files) Config() (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts [3]string
	for i, file := range [][2]string{{f.CAName, f.CA}, {f.CertName, f.Cert}, {f.KeyName, f.Key}} {
		if file[1] == "" {
			continue
		}
		text, err := boundedfile.Read(file[1], maxFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file[0], err)
		}
		texts[i] = string(text)
	}
	if f.conf != nil && slices.Equal(texts[:], f.texts[:]) {
		return f.conf, nil
	}
	conf, err := f.parse(texts)
	if err != nil {
		return nil, err
	}
	f.texts, f.conf = texts, conf
	return conf, nil
}

func (f *Files) parse(texts [3]string) (*tls.Config, error) {
	conf := configOf(nil)
	if f.CA != "" {
		conf.RootCAs = x509.NewCertPool()
		if pool, err := x509.SystemCertPool(); f.Machines && err == nil { // a machine may have none
			conf.RootCAs = pool
		}
		if !conf.RootCAs.AppendCertsFromPEM([]byte(texts[0])) {
			return nil, fmt.Errorf("%s: %s holds no certificate in PEM", f.CAName, f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.X509KeyPair([]byte(texts[1]), []byte(texts[2]))
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w (fix: name a certificate in PEM and its key)", f.CertName, f.KeyName, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
