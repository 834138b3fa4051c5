package agent_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func keyOf(t *testing.T, creds credentials.Credentials) string {
	t.Helper()
	cert, err := creds.TLSCertificate()
	require.NoError(t, err)
	return credentials.KeyFingerprint(cert.Leaf)
}

// customerCA certifies a Runner's public key, as openssl does by docs/reference/policy.md.
func customerCA(t *testing.T) (root string, certify func(name string, creds credentials.Credentials) []byte) {
	t.Helper()
	key := selfsigned.Key(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Customer CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	sign := func(template *x509.Certificate, public any) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, ca, public, key)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return string(sign(ca, &key.PublicKey)), func(name string, creds credentials.Credentials) []byte {
		text, err := creds.PublicKey()
		require.NoError(t, err)
		block, _ := pem.Decode(text)
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		require.NoError(t, err)
		return sign(&x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		}, public)
	}
}

// TestPolicy_TrustsPinnedKeys: a certificate of the control plane's CA is not enough, for new
// connections and for open ones.
func TestPolicy_TrustsPinnedKeys(t *testing.T) {
	p := planetest.Start(t)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("")
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) { c.PolicyFile = file })
	id := p.AwaitOnline(t, time.Time{})
	ci, ops := issueRunner(t, p, "ci"), issueRunner(t, p, "ops")
	for _, creds := range []credentials.Credentials{ci, ops} {
		_, err := holding(t, creds, id).Cluster().Get(t.Context())
		require.NoError(t, err, "without trust the control plane's CA is enough")
	}
	owner := holding(t, ops, id)
	_, err := owner.Namespaces().Set(t.Context(), "held", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = owner.Apps().Deploy(t.Context(), runnerapi.Key{Namespace: "held", Name: "pinned"}, runnerapi.AppSpec{Image: "registry.example.com/quiet:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	open := stream(t, owner, "pinned")

	root, certify := customerCA(t)
	trust := func(keys ...string) {
		write(fmt.Sprintf("trust: [{runners: [ci], keys: [%s]}, {runners: [ops], ca: %q}]", strings.Join(keys, ", "), root))
	}
	trust(keyOf(t, ci))
	awaitEnd(t, "the policy trusts another key", open)
	refused := func(creds credentials.Credentials) {
		t.Helper()
		_, err := holding(t, creds, id).Cluster().Get(t.Context())
		require.ErrorContains(t, err, keyOf(t, creds)+", is not one that the cluster's owner trusts")
	}
	refused(ops)
	_, err = holding(t, ci, id).Cluster().Get(t.Context())
	require.NoError(t, err)

	again := issueRunner(t, p, "ci") // whoever has the control plane can do that
	refused(again)
	trust(keyOf(t, ci), keyOf(t, again)) // two at once
	await.Until(t, "the second pin holds", func() bool {
		_, err := holding(t, again, id).Cluster().Get(t.Context())
		return err == nil
	})

	require.NoError(t, ops.Endorse(certify("ci", ops)))
	refused(ops) // it is certified by another name
	require.NoError(t, ops.Endorse(certify("ops", ops)))
	_, err = holding(t, ops, id).Cluster().Get(t.Context())
	require.NoError(t, err)

	await.Until(t, "the refusals are in the audit log", func() bool { // which is written behind the handshakes
		list, err := holding(t, ops, id).Audit().Find(t.Context(), runnerapi.AuditFilter{Command: runnerapi.AuditConnect})
		require.NoError(t, err)
		return slices.ContainsFunc(list.Items, func(c runnerapi.AuditCall) bool { return c.Code == transport.RefusedNotPinned })
	})
}
