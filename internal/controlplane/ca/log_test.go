package ca

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
)

// memory is a log that may fail.
type memory struct {
	mu      sync.Mutex
	records []Record
	err     error
}

func (m *memory) Record(r Record) error {
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

func (m *memory) last(t *testing.T) Record {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.NotEmpty(t, m.records)
	return m.records[len(m.records)-1]
}

func spiffe(path string) *url.URL { return &url.URL{Scheme: "spiffe", Host: "trust", Path: path} }

func TestCertificate_Logged(t *testing.T) {
	log := &memory{}
	c, err := Open(filepath.Join(t.TempDir(), "ca.pem"), domains, log, at(noon))
	require.NoError(t, err)
	require.Len(t, log.records, 6)
	first := log.records[0]
	assert.Equal(t, RoleCA, first.Role)
	assert.Equal(t, c.Certificate().Subject.CommonName, first.Name)
	for i, intermediate := range c.Intermediates() {
		assert.Equal(t, RoleCA, log.records[i+1].Role)
		assert.Equal(t, intermediate.Subject.CommonName, log.records[i+1].Name)
		assert.Equal(t, KeyID(c.Certificate()), log.records[i+1].Issuer)
	}
	issued, err := kinds(t, c)[0].issue()
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(issued.(Issued).Certificate))
	sum := sha256.Sum256(block.Bytes)
	assert.Equal(t, Record{
		SHA256: hex.EncodeToString(sum[:]), Serial: issued.(Issued).Serial, Role: RoleAgent, Name: "a1", Issuer: c.SignerID(RoleAgent),
		NotBefore: noon.Add(-6 * time.Minute), NotAfter: noon.Add(time.Hour), IssuedAt: noon, Reason: "renewal",
	}, log.last(t))
	for _, k := range kinds(t, c) {
		_, err := k.issue()
		require.NoError(t, err)
		assert.Equal(t, k.logged, log.last(t).Role+" "+log.last(t).Name+" "+log.last(t).Reason)
	}
	before := len(log.records)
	_, err = c.Take(Start)
	require.NoError(t, err)
	assert.Len(t, log.records, before+7, "the new CA, its intermediate CAs, and what the old one signed for it")
}

// kind is a way to issue a certificate.
type kind struct {
	logged string // role, name and reason
	issue  func() (any, error)
}

func kinds(t *testing.T, c *CA) []kind {
	t.Helper()
	req, err := ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)
	runner, _, err := c.Client("ci", spiffe("/runner/ci"), time.Hour, "test")
	require.NoError(t, err)
	old, err := ParseCertificate(runner.Certificate)
	require.NoError(t, err)
	return []kind{
		{"agent a1 renewal", func() (any, error) { return c.Agent(req, "a1.agents", spiffe("/agent/a1"), time.Hour, "renewal") }},
		{"runner ci create", func() (any, error) {
			issued, key, err := c.Client("ci", spiffe("/runner/ci"), time.Hour, "create")
			assert.Equal(t, err == nil, len(key) > 0)
			return issued, err
		}},
		{"runner ci again", func() (any, error) { return c.Renew(old, time.Hour, "again") }},
		{"server localhost 127.0.0.1 listeners of the control plane", func() (any, error) { return c.Server([]string{"localhost", "127.0.0.1"}, time.Hour) }},
		{"controlplane  refresh requests to agents", func() (any, error) { return c.ControlPlane(spiffe("/controlplane"), time.Hour) }},
		{"controlplane n1 connections of control planes", func() (any, error) { return c.Peer(spiffe("/controlplane/n1"), "n1.peers", time.Hour) }},
	}
}

func TestCertificate_LoggedBeforeIssue(t *testing.T) {
	full, log := errors.New("no space left"), &memory{}
	file := filepath.Join(t.TempDir(), "ca.pem")
	log.fail(full)
	_, err := Open(file, domains, log, at(noon))
	require.ErrorIs(t, err, full)
	assert.NoFileExists(t, file)
	log.fail(nil)
	c, err := Open(file, domains, log, at(noon))
	require.NoError(t, err)
	all := kinds(t, c)
	log.fail(full)
	for _, k := range all {
		got, err := k.issue()
		require.ErrorIs(t, err, full, k.logged)
		assert.Empty(t, got, k.logged)
	}
	_, err = c.Take(Start)
	require.ErrorIs(t, err, full)
	assert.Equal(t, Settled, c.Stage())
}

func TestServerCertificate_SurvivesLogFailure(t *testing.T) {
	now, log := noon, &memory{}
	c, err := Open(filepath.Join(t.TempDir(), "ca.pem"), domains, log, func() time.Time { return now })
	require.NoError(t, err)
	s := NewServerCertificate(c, []string{"localhost"})
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
