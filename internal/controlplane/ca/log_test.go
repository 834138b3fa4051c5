package ca_test

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
)

// memory is a log that may fail.
type memory struct {
	mu      sync.Mutex
	records []ca.Record
	err     error
}

func (m *memory) Record(r ca.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.records = append(m.records, r)
	}
	return m.err
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) last(t *testing.T) ca.Record {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.NotEmpty(t, m.records)
	return m.records[len(m.records)-1]
}

func spiffe(path string) *url.URL { return &url.URL{Scheme: "spiffe", Host: "trust", Path: path} }

func TestCertificate_Logged(t *testing.T) {
	log := &memory{}
	c, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), domains, log, at(noon))
	require.NoError(t, err)
	require.Len(t, log.records, 6)
	first := log.records[0]
	assert.Equal(t, ca.RoleCA, first.Role)
	assert.Equal(t, c.Certificate().Subject.CommonName, first.Name)
	for i, intermediate := range c.Intermediates() {
		assert.Equal(t, ca.RoleCA, log.records[i+1].Role)
		assert.Equal(t, intermediate.Subject.CommonName, log.records[i+1].Name)
		assert.Equal(t, ca.KeyID(c.Certificate()), log.records[i+1].Issuer)
	}
	req, err := ca.ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)
	issued, err := c.Agent(req, "a1.agents", spiffe("/agent/a1"), time.Hour, "renewal")
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(issued.Certificate))
	sum := sha256.Sum256(block.Bytes)
	assert.Equal(t, ca.Record{
		SHA256: hex.EncodeToString(sum[:]), Serial: issued.Serial, Role: ca.RoleAgent, Name: "a1", Issuer: c.SignerID(ca.RoleAgent),
		NotBefore: noon.Add(-6 * time.Minute), NotAfter: noon.Add(time.Hour), IssuedAt: noon, Reason: "renewal",
	}, log.last(t))

	runner, _, err := c.Client("ci", spiffe("/runner/ci"), time.Hour, "runner create")
	require.NoError(t, err)
	assert.Equal(t, "runner ci", log.last(t).Role+" "+log.last(t).Name)
	old, err := ca.ParseCertificate(runner.Certificate)
	require.NoError(t, err)
	_, err = c.Renew(old, time.Hour, "again")
	require.NoError(t, err)
	assert.Equal(t, "again", log.last(t).Reason)
	_, err = c.Server([]string{"localhost", "127.0.0.1"}, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, "server localhost 127.0.0.1", log.last(t).Role+" "+log.last(t).Name)
	_, err = c.ControlPlane(spiffe("/controlplane"), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, "controlplane", log.last(t).Role)
	_, err = c.Peer(spiffe("/controlplane/n1"), "n1.peers", time.Hour)
	require.NoError(t, err)
	assert.Equal(t, "controlplane n1", log.last(t).Role+" "+log.last(t).Name)
	before := len(log.records)
	_, err = c.Take(ca.Start)
	require.NoError(t, err)
	assert.Len(t, log.records, before+7, "the new CA, its intermediate CAs, and what the old one signed for it")
}

func TestCertificate_LoggedBeforeIssue(t *testing.T) {
	full, log := errors.New("no space left"), &memory{}
	file := filepath.Join(t.TempDir(), "ca.pem")
	log.fail(full)
	_, err := ca.Open(file, domains, log, at(noon))
	require.ErrorIs(t, err, full)
	assert.NoFileExists(t, file)
	log.fail(nil)
	c, err := ca.Open(file, domains, log, at(noon))
	require.NoError(t, err)
	runner, _, err := c.Client("ci", spiffe("/runner/ci"), time.Hour, "test")
	require.NoError(t, err)
	old, err := ca.ParseCertificate(runner.Certificate)
	require.NoError(t, err)
	req, err := ca.ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)

	log.fail(full)
	agent, err := c.Agent(req, "a1.agents", spiffe("/agent/a1"), time.Hour, "test")
	require.ErrorIs(t, err, full)
	assert.Empty(t, agent)
	runner, key, err := c.Client("ci", spiffe("/runner/ci"), time.Hour, "test")
	require.ErrorIs(t, err, full)
	assert.Empty(t, runner)
	assert.Empty(t, key)
	again, err := c.Renew(old, time.Hour, "test")
	require.ErrorIs(t, err, full)
	assert.Empty(t, again)
	server, err := c.Server([]string{"localhost"}, time.Hour)
	require.ErrorIs(t, err, full)
	assert.Nil(t, server)
	own, err := c.ControlPlane(spiffe("/controlplane"), time.Hour)
	require.ErrorIs(t, err, full)
	assert.Nil(t, own)
	own, err = c.Peer(spiffe("/controlplane/n1"), "n1.peers", time.Hour)
	require.ErrorIs(t, err, full)
	assert.Nil(t, own)
	_, err = c.Take(ca.Start)
	require.ErrorIs(t, err, full)
	assert.Equal(t, ca.Settled, c.Stage())
}

func TestServerCertificate_SurvivesLogFailure(t *testing.T) {
	now, log := noon, &memory{}
	c, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), domains, log, func() time.Time { return now })
	require.NoError(t, err)
	s := ca.NewServerCertificate(c, []string{"localhost"})
	first, err := s.Get(nil)
	require.NoError(t, err)
	log.fail(errors.New("no space left"))
	now = noon.AddDate(0, 0, 61)
	same, err := s.Get(nil)
	require.NoError(t, err)
	assert.Same(t, first, same)
	log.fail(nil)
	now = now.Add(2 * time.Minute)
	next, err := s.Get(nil)
	require.NoError(t, err)
	assert.NotSame(t, first, next)
	log.fail(errors.New("no space left"))
	now = noon.AddDate(0, 0, 200)
	_, err = s.Get(nil)
	require.ErrorContains(t, err, "no space left", "it has ended")
}
