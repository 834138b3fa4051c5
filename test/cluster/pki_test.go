package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func TestPKI(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	n := network{Index: 3}
	require.NoError(t, makePKI(filepath.Join(dir, "pki"), kubeconfig, "node-x", n))

	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "https://10.200.3.2:6443", config.Clusters["test"].Server)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(config.Clusters["test"].CertificateAuthorityData))

	server, err := tls.LoadX509KeyPair(filepath.Join(dir, "pki", "apiserver.crt"), filepath.Join(dir, "pki", "apiserver.key"))
	require.NoError(t, err)
	for _, name := range []string{"10.200.3.2", "10.131.0.1", "127.0.0.1", "kubernetes.default.svc"} {
		_, err := server.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
		require.NoError(t, err, name)
	}
	user := config.AuthInfos["test"]
	admin, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	require.NoError(t, err)
	_, err = admin.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	require.Equal(t, []string{"system:masters"}, admin.Leaf.Subject.Organization)

	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		if !entry.IsDir() {
			require.Zero(t, info.Mode().Perm()&0o077, "%s can be read by others", path)
		}
		return nil
	}))
}

func TestTemplates(t *testing.T) {
	c := &Cluster{Name: "x", dir: t.TempDir()}
	for _, template := range templates.Templates() {
		if template.Name() == "" {
			continue
		}
		content, err := render(template.Name(), c.values())
		require.NoError(t, err)
		require.NotContains(t, string(content), "<no value>")
		require.NotContains(t, string(content), "{{")
	}
}
