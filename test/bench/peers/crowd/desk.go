package crowd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const version = "v0.0.0-bench"

// desk is where agents register.
type desk struct {
	url    string
	token  controlapi.Token
	client *controlapi.Client

	mu    sync.Mutex
	first *identity.Identity // the first identity that was issued
}

func newDesk(url string, roots []byte, token controlapi.Token) (*desk, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, errors.New("the control plane's CA is no certificate")
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	client, err := controlapi.NewClient(controlapi.ClientConfig{URL: url, TLS: func() *tls.Config { return secure }, Log: zerolog.Nop()})
	return &desk{url: url, token: token, client: client}, err
}

func (d *desk) close() { d.client.Close() }

// Name returns the name of an agent.
func Name(number int) string { return fmt.Sprintf("bench-%05d", number) }

func (d *desk) enrol(ctx context.Context, number int) (*agent, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := identity.CSR(key)
	if err != nil {
		return nil, err
	}
	name := Name(number)
	answer, err := d.client.Register(ctx, d.token, controlapi.RegisterRequest{
		Name: name, ClusterUID: clusterUID(number), CSR: request, Clock: time.Now(), AgentVersion: version, RunnerAPIVersion: "v1",
		KubernetesVersion: kubernetesVersion, Distribution: "simulated", Capacity: capacity,
	})
	if err != nil {
		return nil, fmt.Errorf("register agent %s: %w", name, err)
	}
	id, err := identity.New(key, answer, false)
	if err != nil {
		return nil, err
	}
	d.share(id)
	slim(id)
	return newAgent(id, number, d.url)
}

// share makes an agent trust the same CA objects as the agents before it. Outside a crowd, a
// process has one agent and one copy.
func (d *desk) share(id *identity.Identity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == nil {
		d.first = id
	}
	if id.CABundle == d.first.CABundle && id.FormerCAs == d.first.FormerCAs {
		id.CABundle, id.FormerCAs, id.Roots = d.first.CABundle, d.first.FormerCAs, d.first.Roots
	}
}

// slim removes what an agent needs only to store its identity and to renew it in time: agents of a
// crowd do neither. TLS uses the rest.
func slim(id *identity.Identity) {
	id.Certificate.Leaf, id.Identity.Certificate = nil, ""
}

func clusterUID(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }
