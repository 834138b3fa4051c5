package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const validity = 365 * 24 * time.Hour

// keyPair is a certificate with its key, both also as PEM.
type keyPair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// identity is what a certificate is issued for.
type identity struct {
	name          string
	organizations []string
	dnsNames      []string
	addresses     []netip.Addr
	usage         x509.ExtKeyUsage
}

// makePKI writes into dir all the keys and certificates of the cluster, and
// kubeconfigs of its components; the administrator's goes to kubeconfig.
func makePKI(dir, kubeconfig, nodeName string, n network) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	ca, err := newAuthority("kubernetes-ca")
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if err := errors.Join(
		ca.save(dir, "ca"),
		servingCertificates(dir, ca, nodeName, n),
		frontProxy(dir),
		serviceAccountKey(dir),
		kubeconfigs(dir, kubeconfig, ca, nodeName, n),
	); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	return nil
}

func servingCertificates(dir string, ca keyPair, nodeName string, n network) error {
	local := netip.MustParseAddr("127.0.0.1")
	return errors.Join(
		ca.issueTo(dir, "apiserver", identity{
			name: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth,
			dnsNames: []string{
				"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", "localhost",
			},
			addresses: []netip.Addr{local, n.apiService(), n.node()},
		}),
		ca.issueTo(dir, "kubelet", identity{
			name: "system:node:" + nodeName, organizations: []string{"system:nodes"}, usage: x509.ExtKeyUsageServerAuth,
			dnsNames: []string{nodeName}, addresses: []netip.Addr{local, n.node()},
		}),
		ca.issueTo(dir, "apiserver-kubelet-client", identity{
			name: "kube-apiserver-kubelet-client", organizations: []string{"system:masters"}, usage: x509.ExtKeyUsageClientAuth,
		}),
	)
}

// frontProxy returns how the API server shows aggregated API servers that a request comes from it.
func frontProxy(dir string) error {
	ca, err := newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	return errors.Join(ca.save(dir, "front-proxy-ca"), ca.issueTo(dir, "front-proxy-client", identity{
		name: "front-proxy-client", usage: x509.ExtKeyUsageClientAuth,
	}))
}

func serviceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "sa.key"), encodePEM("PRIVATE KEY", private), 0o600),
		os.WriteFile(filepath.Join(dir, "sa.pub"), encodePEM("PUBLIC KEY", public), 0o600),
	)
}

func kubeconfigs(dir, admin string, ca keyPair, nodeName string, n network) error {
	const local = "https://127.0.0.1:6443"
	users := []struct {
		file, server string
		identity     identity
	}{
		{admin, "https://" + n.node().String() + ":6443", identity{name: "admin", organizations: []string{"system:masters"}}},
		{filepath.Join(dir, "controller-manager.kubeconfig"), local, identity{name: "system:kube-controller-manager"}},
		{filepath.Join(dir, "scheduler.kubeconfig"), local, identity{name: "system:kube-scheduler"}},
		{filepath.Join(dir, "proxy.kubeconfig"), local, identity{name: "system:kube-proxy"}},
		{filepath.Join(dir, "kwok.kubeconfig"), local, identity{name: "kwok", organizations: []string{"system:masters"}}},
		{filepath.Join(dir, "kubelet.kubeconfig"), local, identity{name: "system:node:" + nodeName, organizations: []string{"system:nodes"}}},
	}
	for _, user := range users {
		user.identity.usage = x509.ExtKeyUsageClientAuth
		pair, err := ca.issue(user.identity)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(user.file, user.server, ca, pair); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(file, server string, ca, user keyPair) error {
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca.certPEM}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: user.certPEM, ClientKeyData: user.keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file) // with mode 0600
}

func newAuthority(name string) (keyPair, error) {
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	return sign(template, nil)
}

func (ca keyPair) issue(id identity) (keyPair, error) {
	template := newTemplate(pkix.Name{CommonName: id.name, Organization: id.organizations})
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{id.usage}
	template.DNSNames = id.dnsNames
	for _, address := range id.addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	return sign(template, &ca)
}

func (ca keyPair) issueTo(dir, file string, id identity) error {
	pair, err := ca.issue(id)
	if err != nil {
		return err
	}
	return pair.save(dir, file)
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: subject, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}
}

// sign makes a key and a certificate for it; without a parent it signs itself.
func sign(template *x509.Certificate, parent *keyPair) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return keyPair{}, err
	}
	issuer, issuerKey := template, key
	if parent != nil {
		issuer, issuerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return keyPair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert, key, encodePEM("CERTIFICATE", der), encodePEM("EC PRIVATE KEY", keyDER)}, nil
}

func (ca keyPair) save(dir, name string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), ca.certPEM, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), ca.keyPEM, 0o600),
	)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
