package tracing

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"google.golang.org/grpc/credentials"

	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

const (
	general = "OTEL_EXPORTER_OTLP_"
	traces  = "OTEL_EXPORTER_OTLP_TRACES_" // of one kind overrides the general one

	// defaultTimeout is that of OpenTelemetry's specification of exporters.
	defaultTimeout = 10 * time.Second
)

// settings are the standard variables.
type settings func(string) string

// named returns a variable and its value.
func (s settings) named(name string) (variable, value string) {
	if value = s(traces + name); value != "" {
		return traces + name, value
	}
	return general + name, s(general + name)
}

func (s settings) value(name string) string {
	_, value := s.named(name)
	return value
}

// files returns the collector's CA and our certificate, which the SDK would read only once. It
// returns nil where the variables name none, or want no TLS.
func (s settings) files() (tlsfiles.Source, error) {
	f := &tlsfiles.Files{}
	f.CAName, f.CA = s.named("CERTIFICATE")
	f.CertName, f.Cert = s.named("CLIENT_CERTIFICATE")
	f.KeyName, f.Key = s.named("CLIENT_KEY")
	plain := strings.HasPrefix(s.value("ENDPOINT"), "http://")
	if plain || f.CA == "" && f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	_, err := f.Config()
	return f.Config, err
}

// timeout returns how long an export may take.
func (s settings) timeout() time.Duration {
	ms, err := strconv.Atoi(s.value("TIMEOUT"))
	if err != nil || ms <= 0 {
		return defaultTimeout
	}
	return time.Duration(ms) * time.Millisecond
}

// overHTTP returns the options of an exporter whose certificates are read again.
func (s settings) overHTTP(source tlsfiles.Source) []otlptracehttp.Option {
	if source == nil {
		return nil
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	return []otlptracehttp.Option{otlptracehttp.WithHTTPClient(&http.Client{Transport: tlsfiles.NewTransport(base.Clone(), source), Timeout: s.timeout()})}
}

// overGRPC is like overHTTP.
func overGRPC(source tlsfiles.Source) []otlptracegrpc.Option {
	if source == nil {
		return nil
	}
	return []otlptracegrpc.Option{otlptracegrpc.WithTLSCredentials(reread{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), source})}
}

// reread are credentials whose files are read for each connection.
type reread struct {
	credentials.TransportCredentials
	source tlsfiles.Source
}

// ClientHandshake implements credentials.TransportCredentials.
func (r reread) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conf, err := r.source()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(conf).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r reread) Clone() credentials.TransportCredentials {
	return reread{r.TransportCredentials.Clone(), r.source}
}
