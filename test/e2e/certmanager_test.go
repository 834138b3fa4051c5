package e2e

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/test/acmetest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// certManager names the images that are made of the module, and the DNS server by which the
// controller tries a challenge itself before the CA does.
func certManager(dns string) component {
	image := map[string]any{"tag": upstream.CertManagerVersion}
	return component{Mode: "always", Values: map[string]any{"cert-manager": map[string]any{
		"image": image, "extraArgs": []string{"--acme-http01-solver-nameservers=" + dns},
		"webhook": map[string]any{"image": image}, "cainjector": map[string]any{"image": image}, "acmesolver": map[string]any{"image": image},
	}}}
}

// certManagerPolicy lets Apps name an issuer, as docs/cluster-owner/components.md has it.
const certManagerPolicy = `rules:
- name: apps
  annotations: [cert-manager.io/cluster-issuer]
`

// TestCertManager_AppCertificate: cert-manager obtains a certificate for an App's Ingress, by
// HTTP-01 through Traefik, from pebble. All three are the real ones. The component installs
// cert-manager.
func TestCertManager_AppCertificate(t *testing.T) {
	suite.Release(t, "cert-manager: a certificate of an ACME CA for an App's Ingress")
	const app, host, issuer = "certified", "certified.example.org", "pebble"
	dns := dnstest.StartAt(t, sys.HostIP())
	dns.Set(t, host, "A "+sys.Cluster.NodeIP())
	load(t, upstream.CertManager...)
	installTraefik(t)
	installComponents(t, map[string]component{"cert-manager": certManager(dns.Address)})

	await.Until(t, "component list shows cert-manager ready", func() bool {
		return regexp.MustCompile(`cert-manager\s+ready`).MatchString(components(t.Context(), t, "list"))
	})
	authority, ca := startPebble(t, dns.Address)
	from := acmeIssuer(issuer, authority.Directory, ca)
	await.Until(t, "the webhook takes the issuer", func() bool { return sys.Kube.Apply(t.Context(), from) == nil })
	t.Cleanup(func() { assert.NoError(t, sys.Kube.Delete(context.Background(), from)) })
	policyBecomes(t, "active", map[string]string{"policy.yaml": certManagerPolicy})

	removeApp(t, app)
	pipeops(t, "deploy", agentName, "-f", appFile(t, app, fmt.Sprintf(
		"class: %s, annotations: {cert-manager.io/cluster-issuer: %s}, hosts: [{host: %s, tlsSecret: %s-tls}]", traefik, issuer, host, app)), "--wait=2m")
	began := time.Now()
	answersAtTheBalancer(t, host, authority.Issuers)
	t.Logf("a visitor trusts it %s after the deploy", time.Since(began).Round(time.Millisecond))
}

// startPebble runs the ACME CA at an address that the cluster reaches. It looks hosts up at a DNS
// server, and connects to their usual ports. It returns its directory's certificate, too, in PEM.
func startPebble(t *testing.T, dns string) (authority acmetest.CA, certificate []byte) {
	t.Helper()
	own, key := selfSigned(t, sys.HostIP())
	pair, err := tls.LoadX509KeyPair(own, key)
	require.NoError(t, err)
	certificate, err = os.ReadFile(own)
	require.NoError(t, err)
	return acmetest.Start(t, acmetest.Options{Host: sys.HostIP(), Certificate: &pair, DNS: dns, HTTPPort: 80, HTTPSPort: 443}), certificate
}

// acmeIssuer is a ClusterIssuer of cert-manager that obtains certificates by HTTP-01.
func acmeIssuer(name, directory string, ca []byte) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"acme": map[string]any{
			"server": directory, "caBundle": base64.StdEncoding.EncodeToString(ca), "privateKeySecretRef": map[string]any{"name": name + "-account"},
			"solvers": []any{map[string]any{"http01": map[string]any{"ingress": map[string]any{"ingressClassName": traefik}}}},
		}},
	}}
}
