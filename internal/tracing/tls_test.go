package tracing_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
	"github.com/pipeops/pipeops-vm-agent/test/otlptest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// secured serves a collector over mutual TLS, and returns its URL.
func secured(t *testing.T, protocol string, c *otlptest.Collector, conf *tls.Config) string {
	t.Helper()
	if protocol == "grpc" {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)))
		collector.RegisterTraceServiceServer(server, c)
		go func() { _ = server.Serve(l) }() // Stop ends it
		t.Cleanup(server.Stop)
		return "https://" + l.Addr().String()
	}
	server := httptest.NewUnstartedServer(c)
	server.TLS = conf
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// TestStart_CertificatesReadAgain replaces the collector's CA and the client's certificate after
// the start.
func TestStart_CertificatesReadAgain(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				file := filepath.Join(dir, name)
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				return file
			}
			cert, key, err := selfsigned.PEM("127.0.0.1")
			require.NoError(t, err)
			pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
			require.NoError(t, err)
			clientCert, clientKey, err := selfsigned.PEM("client")
			require.NoError(t, err)
			clients := x509.NewCertPool()
			clients.AppendCertsFromPEM([]byte(clientCert))
			c := otlptest.New(t)
			url := secured(t, protocol, c, &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
			})
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)

			oldCert, oldKey, err := selfsigned.PEM("old")
			require.NoError(t, err)
			vars := env("OTEL_EXPORTER_OTLP_ENDPOINT", url, "OTEL_EXPORTER_OTLP_PROTOCOL", protocol,
				"OTEL_EXPORTER_OTLP_CERTIFICATE", write("ca.pem", oldCert),
				"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", write("tls.crt", oldCert), "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", write("tls.key", oldKey))
			traces, err := tracing.Start(t.Context(), "pipeops-test", "1.2.3", vars, zerolog.Nop())
			require.NoError(t, err)
			write("ca.pem", cert)
			write("tls.crt", clientCert)
			write("tls.key", clientKey)
			_, done := span.Begin(t.Context(), traces.Provider(), "work")
			done(nil)
			traces.Stop(t.Context())
			require.Len(t, c.Spans(), 1)
			assert.Equal(t, "work", c.Spans()[0].Name)

			write("ca.pem", "none")
			_, err = tracing.Start(t.Context(), "pipeops-test", "1.2.3", vars, zerolog.Nop())
			require.EqualError(t, err, "OTEL_EXPORTER_OTLP_CERTIFICATE: "+filepath.Join(dir, "ca.pem")+" holds no certificate in PEM")
		})
	}
}
