package way

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The names in the certificates.
const (
	AgentID     = "bench"
	ServerName  = AgentID + "." + domain
	domain      = "agents.bench.internal"
	TrustDomain = "bench.internal"
	relayName   = "localhost"
	ttl         = 24 * time.Hour
)

// The files of NewCertificates: each holder has a certificate and its key.
const (
	fileCA   = "ca.pem"
	relay    = "relay"
	agent    = "agent"
	runner   = "runner"
	fileMode = 0o600
)

func certFile(dir, holder string) string { return filepath.Join(dir, holder+".crt") }
func keyFile(dir, holder string) string  { return filepath.Join(dir, holder+".key") }
func caFile(dir string) string           { return filepath.Join(dir, fileCA) }

// NewCertificates lets the control plane's own CA issue what relay, agent and Runner need, into a
// directory.
func NewCertificates(dir string) error {
	authority, err := ca.Open(filepath.Join(dir, "authority"), ca.Domains{Trust: TrustDomain, Agents: domain}, ca.LogFunc(func(ca.Record) error { return nil }), time.Now)
	if err != nil {
		return err
	}
	if err := os.WriteFile(caFile(dir), authority.Bundle(), fileMode); err != nil {
		return err
	}
	server, err := authority.Server([]string{relayName, "127.0.0.1"}, ttl)
	if err != nil {
		return err
	}
	var chain []byte
	for _, der := range server.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := identity.NewKey()
	if err != nil {
		return err
	}
	text, err := identity.CSR(key)
	if err != nil {
		return err
	}
	request, err := ca.ParseRequest(text)
	if err != nil {
		return err
	}
	ofAgent, err := authority.Agent(request, ServerName, credentials.AgentURI(TrustDomain, AgentID), ttl, "benchmark")
	if err != nil {
		return err
	}
	ofRunner, runnerKey, err := authority.Client("bench", credentials.RunnerURI(TrustDomain, "bench"), ttl, "benchmark")
	if err != nil {
		return err
	}
	return errors.Join(
		writeKey(dir, relay, server.PrivateKey), writeCert(dir, relay, chain),
		writeKey(dir, agent, key), writeCert(dir, agent, []byte(ofAgent.Certificate)),
		os.WriteFile(keyFile(dir, runner), runnerKey, fileMode), writeCert(dir, runner, []byte(ofRunner.Certificate)),
	)
}

func writeKey(dir, holder string, key any) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(keyFile(dir, holder), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), fileMode)
}

func writeCert(dir, holder string, chain []byte) error {
	return os.WriteFile(certFile(dir, holder), chain, fileMode)
}

func pair(dir, holder string) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certFile(dir, holder), keyFile(dir, holder))
	return &cert, err
}

func roots(dir string) (*x509.CertPool, error) {
	text, err := os.ReadFile(caFile(dir))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", caFile(dir))
	}
	return pool, nil
}

// relayTLS returns the relay's side of mutual TLS with the agent.
func relayTLS(dir string) (*tls.Config, error) {
	cert, err := pair(dir, relay)
	pool, err2 := roots(dir)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, errors.Join(err, err2)
}

// agentTLS returns the agent's side.
func agentTLS(dir string) (*tls.Config, error) {
	cert, err := pair(dir, agent)
	pool, err2 := roots(dir)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, RootCAs: pool, ServerName: relayName,
	}, errors.Join(err, err2)
}
