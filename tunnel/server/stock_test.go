package server_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config"
	"github.com/fatedier/frp/pkg/config/source"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

// stockEnv names the configuration file with which the test binary is frpc.
const stockEnv = "TUNNEL_TEST_STOCK_FRPC"

// Connects frp's own client with an agent's certificate: this is FRP. The client has its own
// process because it cannot be stopped without a data race.
func TestFRP_StockClient(t *testing.T) {
	p := newPlane(t)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go echoConnections(ln)
	frpc := exec.CommandContext(t.Context(), os.Args[0])
	frpc.Env = append(os.Environ(), stockEnv+"="+stockConfig(t, p, ln.Addr().String()))
	require.NoError(t, frpc.Start())
	t.Cleanup(func() { _, _ = frpc.Process.Kill(), frpc.Wait() })
	await.Until(t, "frpc is connected", func() bool { return p.Connected("a1") })

	conn, err := p.Dial(t.Context(), "a1")
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	got := make([]byte, 5)
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// runStockFRPC is what frpc's main does with a configuration file.
func runStockFRPC() {
	common, proxies, visitors, _, err := config.LoadClientConfig(os.Getenv(stockEnv), true)
	if err == nil {
		src := source.NewConfigSource()
		err = src.ReplaceAll(proxies, visitors)
		if err == nil {
			var service *client.Service
			service, err = client.NewService(client.ServiceOptions{
				Common: common, ConfigSourceAggregator: source.NewAggregator(src),
			})
			if err == nil {
				err = service.Run(context.Background())
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func stockConfig(t *testing.T, p *plane, local string) string {
	t.Helper()
	certificate := p.ca.Agent("a1").Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
		"ca.pem":   {Type: "CERTIFICATE", Bytes: p.ca.Certificate()},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	server, err := net.ResolveTCPAddr("tcp", p.addr)
	require.NoError(t, err)
	echo, err := net.ResolveTCPAddr("tcp", local)
	require.NoError(t, err)
	path := filepath.Join(dir, "frpc.toml")
	content := fmt.Sprintf(`
user = "a1"
serverAddr = %q
serverPort = %d
transport.tls.certFile = %q
transport.tls.keyFile = %q
transport.tls.trustedCaFile = %q
transport.tls.serverName = %q

[[proxies]]
name = "agent"
type = "stcp"
secretKey = "ignored"
localIP = %q
localPort = %d
`, server.IP, server.Port, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
		filepath.Join(dir, "ca.pem"), tunneltest.ServerName, echo.IP, echo.Port)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
