package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	probeInterval = 20 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

// Probe describes how to detect that a component is ready. The zero value does not wait.
type Probe struct {
	// Network and Address are dialled: "tcp" or "unix".
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	// URL must answer 200 over TLS with a certificate of CAFile.
	URL    string `json:"url,omitempty"`
	CAFile string `json:"caFile,omitempty"`
}

// attempt returns nil when the component is ready.
func (p Probe) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch {
	case p.URL != "":
		return p.get(ctx)
	case p.Address != "":
		conn, err := new(net.Dialer).DialContext(ctx, p.Network, p.Address)
		if err != nil {
			return err
		}
		return conn.Close()
	default:
		return nil
	}
}

func (p Probe) get(ctx context.Context) error {
	pem, err := os.ReadFile(p.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", p.CAFile)
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
