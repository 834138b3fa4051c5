package way

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
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

// maxInstances is how many ways may be started in one run.
const maxInstances = 32

// Address returns the address of this machine that an instance of a way has for itself.
func Address(instance int) string { return fmt.Sprintf("127.0.67.%d", instance) }

// The files of NewCertificates: each holder has a certificate and its key.
const (
	relay  = "relay"
	agent  = "agent"
	runner = "runner"
)

func certFile(dir, holder string) string { return filepath.Join(dir, holder+".crt") }
func keyFile(dir, holder string) string  { return filepath.Join(dir, holder+".key") }
func caFile(dir string) string           { return filepath.Join(dir, "ca.pem") }

// NewCertificates lets the control plane's own CA issue what relay, agent and Runner need, into a
// directory.
func NewCertificates(dir string) {
	domains := ca.Domains{Trust: TrustDomain, Agents: domain}
	authority := run.Must(ca.Open(filepath.Join(dir, "authority"), domains, ca.LogFunc(func(ca.Record) error { return nil }), time.Now))
	write := func(holder string, cert, key []byte) {
		run.Check(os.WriteFile(certFile(dir, holder), cert, 0o600))
		run.Check(os.WriteFile(keyFile(dir, holder), key, 0o600))
	}
	encode := func(kind string, ders ...[]byte) (text []byte) {
		for _, der := range ders {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
		}
		return text
	}
	private := func(key any) []byte { return encode("PRIVATE KEY", run.Must(x509.MarshalPKCS8PrivateKey(key))) }
	run.Check(os.WriteFile(caFile(dir), authority.Bundle(), 0o600))
	names := []string{relayName}
	for n := range maxInstances {
		names = append(names, Address(n))
	}
	server := run.Must(authority.Server(names, ttl))
	write(relay, encode("CERTIFICATE", server.Certificate...), private(server.PrivateKey))
	key := run.Must(identity.NewKey())
	request := run.Must(ca.ParseRequest(run.Must(identity.CSR(key))))
	ofAgent := run.Must(authority.Agent(request, ServerName, credentials.AgentURI(TrustDomain, AgentID), ttl, "benchmark"))
	write(agent, []byte(ofAgent.Certificate), private(key))
	ofRunner, runnerKey, err := authority.Client("bench", credentials.RunnerURI(TrustDomain, "bench"), ttl, "benchmark")
	run.Check(err)
	write(runner, []byte(ofRunner.Certificate), runnerKey)
}

func pair(dir, holder string) tls.Certificate {
	return run.Must(tls.LoadX509KeyPair(certFile(dir, holder), keyFile(dir, holder)))
}

func roots(dir string) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(run.Must(os.ReadFile(caFile(dir))))
	return pool
}

// relayTLS returns the relay's side of mutual TLS with the agent.
func relayTLS(dir string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair(dir, relay)},
		ClientCAs: roots(dir), ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// agentTLS returns the agent's side.
func agentTLS(dir string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair(dir, agent)}, RootCAs: roots(dir), ServerName: relayName,
	}
}
