package policy_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

var issued = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// authority is a CA that certifies keys.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{t: t, key: selfsigned.Key(t)}
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, &a.key.PublicKey)
	return a
}

func (a authority) sign(template, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), issued.Add(-time.Hour), issued.Add(time.Hour)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert
}

func (a authority) certify(name string, key *ecdsa.PrivateKey) *x509.Certificate {
	return a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}}, a.cert, &key.PublicKey)
}

func (a authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// trusting is a policy with these entries.
func trusting(t *testing.T, trust ...policy.Trust) *policy.Policy {
	t.Helper()
	text, err := json.Marshal(policy.Document{Trust: trust})
	require.NoError(t, err)
	doc, err := policy.Parse(text)
	require.NoError(t, err)
	p := policy.New("a test")
	p.Set(doc, nil)
	return p
}

func TestTrust_ByKeyOrCA(t *testing.T) {
	plane, customer, stranger := newAuthority(t, "plane"), newAuthority(t, "customer"), newAuthority(t, "stranger")
	mine, next, forged := selfsigned.Key(t), selfsigned.Key(t), selfsigned.Key(t)
	present := func(key *ecdsa.PrivateKey, more ...*x509.Certificate) []*x509.Certificate {
		return append([]*x509.Certificate{plane.certify("", key)}, more...)
	}
	fingerprint := func(key *ecdsa.PrivateKey) string { return credentials.KeyFingerprint(plane.certify("", key)) }
	p := trusting(t,
		policy.Trust{Runners: []string{"ci"}, Keys: []string{fingerprint(mine), fingerprint(next)}},
		policy.Trust{Runners: []string{"ops-*"}, CA: customer.pem()},
	)
	for name, c := range map[string]struct {
		runner  string
		certs   []*x509.Certificate
		at      time.Time
		refused string
	}{
		"the pinned key":                {"ci", present(mine), issued, ""},
		"the next one":                  {"ci", present(next), issued, ""},
		"another of the plane's CA":     {"ci", present(forged), issued, "neither pinned"},
		"a pinned key by another name":  {"ops-1", present(mine), issued, "neither pinned"},
		"a name that nobody trusts":     {"bot", present(mine), issued, "not this one"},
		"certified by the customer":     {"ops-1", present(forged, customer.certify("ops-1", forged)), issued, ""},
		"not certified":                 {"ops-1", present(forged), issued, "neither pinned"},
		"certified by somebody else":    {"ops-1", present(forged, stranger.certify("ops-1", forged)), issued, "neither pinned"},
		"certified for another name":    {"ops-1", present(forged, customer.certify("ops-2", forged)), issued, "neither pinned"},
		"certified for another key":     {"ops-1", present(forged, customer.certify("ops-1", mine)), issued, "neither pinned"},
		"certified, and not any more":   {"ops-1", present(forged, customer.certify("ops-1", forged)), issued.Add(2 * time.Hour), "neither pinned"},
		"the customer's CA as evidence": {"ops-1", present(forged, customer.cert), issued, "neither pinned"},
	} {
		err := p.Trusts(c.runner, c.certs, c.at)
		if c.refused == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.refused, name)
		}
	}
	require.NoError(t, trusting(t).Trusts("anybody", present(forged), issued), "without trust the plane's CA is enough")
}

func TestTrust_NamesMistakes(t *testing.T) {
	for text, wrong := range map[string]string{
		"trust: []": "trust", "trust: [{runners: [ci]}]": "trust[0]", `trust: [{keys: ["abc"]}]`: "trust[0].keys[0]",
		"trust: [{ca: hello}]": "trust[0].ca", `trust: [{runners: ["a b"], ca: hello}]`: "trust[0].runners[0]", "audit: sometimes": "audit",
	} {
		refusesField(t, text, wrong)
	}
}

// TestFetchHosts_Current has a guard ask a policy that changes.
func TestFetchHosts_Current(t *testing.T) {
	p := policy.New("ConfigMap pipeops/pipeops-policy")
	guard := egress.Guard{Hosts: p.FetchHosts}
	const host = "git.example.com"
	refused := &egress.RefusedError{}
	require.ErrorAs(t, guard.CheckHost(host), &refused, "the policy is not known yet")
	for _, c := range []struct {
		text string
		fine bool
	}{
		{"", true}, {"fetchHosts: []", false}, {"fetchHosts: [git.example.com]", true}, {"fetchHosts: ['*.example.com']", true},
		{"fetchHosts: [charts.example.com, '*.git.example.com']", false}, {"fetchHosts: ['*']", true}, {"rules: []", true},
	} {
		doc, err := policy.Parse([]byte(c.text))
		require.NoError(t, err, c.text)
		p.Set(doc, nil)
		err = guard.CheckHost(host)
		assert.Equal(t, c.fine, err == nil, "%s: %v", c.text, err)
		if !c.fine && assert.ErrorAs(t, err, &refused) {
			assert.Contains(t, refused.Error(), `"git.example.com"`)
			assert.Contains(t, refused.Fix(), "fetchHosts in ConfigMap pipeops/pipeops-policy")
		}
	}
	p.Set(policy.Document{}, errors.New("it is invalid"))
	require.ErrorAs(t, guard.CheckHost(host), &refused)
}

func TestFetchHosts_NamesMistakes(t *testing.T) {
	for text, field := range map[string]string{
		"fetchHosts: [git.example.com, 'https://git.example.com']": "fetchHosts[1]",
		"fetchHosts: ['git.example.com:443']":                      "fetchHosts[0]",
		"fetchHosts: [git.example.com/shop]":                       "fetchHosts[0]",
		"fetchHosts: [Git.example.com]":                            "fetchHosts[0]",
		"fetchHosts: ['']":                                         "fetchHosts[0]",
		"fetchHosts: ['[a-z].example.com']":                        "fetchHosts[0]",
		"fetchHosts: ['*.*.*.*.*.example.com']":                    "fetchHosts[0]",
		"fetchHosts: git.example.com":                              "fetchHosts",
		"rules: [{name: a, fetchHosts: [git.example.com]}]":        "rules[0].fetchHosts",
	} {
		refusesField(t, text, field)
	}
}
