package gateway_test

import (
	"context"
	"crypto/tls"
	_ "embed"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/conformance"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

//go:embed testdata/h2spec.txt
var h2specExceptions string

// exceptions returns the reasons why cases of h2spec fail, by case.
func exceptions() map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(h2specExceptions) {
		id, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id != "" && !strings.HasPrefix(id, "#") {
			reasons[id] = strings.TrimSpace(reason)
		}
	}
	return reasons
}

// terminate passes the bytes of HTTP/1.1 and HTTP/2 in TLS on to an App.
func (w *world) terminate(ln net.Listener, app string) {
	w.run(func(ctx context.Context) error {
		return accept(ctx, ln, func(conn net.Conn) {
			to, err := (&net.Dialer{}).DialContext(ctx, "tcp", app)
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { _ = to.Close() })()
			var both sync.WaitGroup
			defer both.Wait()
			both.Go(func() {
				_, _ = io.Copy(to, conn)
				_ = to.Close()
			})
			_, _ = io.Copy(conn, to)
			_ = conn.Close()
		})
	})
}

// inBothModes runs a test of an App that speaks HTTP/2 without TLS. In direct mode a load balancer
// ends TLS.
func inBothModes(t *testing.T, name string, app func(t *testing.T) (address string), test func(t *testing.T, s *site)) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		t.Run(mode, func(t *testing.T) {
			address := app(t)
			secure := tls.NewListener(listen(t), &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*issued(t)}, NextProtos: []string{"h2", "http/1.1"},
			})
			s := newSiteIn(t, mode, name, address, secure)
			s.terminate(secure, address)
			s.found(mode)
			test(t, s)
		})
	}
}

// TestH2spec runs the whole suite through the gateway and the agent. testdata/h2spec.txt has the
// reason for each case that fails.
func TestH2spec(t *testing.T) {
	suite.Release(t, "conformance to HTTP/2, by h2spec")
	const localhost = "localhost" // h2spec takes the name for TLS and the address to connect to from one flag
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})
	inBothModes(t, localhost, func(t *testing.T) string { return backend(t, app) }, func(t *testing.T, s *site) {
		_, port, err := net.SplitHostPort(s.secure.String())
		require.NoError(t, err)
		cases, err := conformance.HTTP2(t.Context(), localhost, port, t.TempDir())
		require.NoError(t, err)
		require.Greater(t, len(cases), 140, "h2spec ran all of its cases")
		judge(t, cases)
	})
}

// TestGRPC_Interop runs gRPC's interoperability tests with grpc-go's client and service.
func TestGRPC_Interop(t *testing.T) {
	suite.Release(t, "conformance to gRPC, by its interoperability tests")
	inBothModes(t, host, conformance.ServeGRPC, func(t *testing.T, s *site) {
		root := filepath.Join(t.TempDir(), "root.pem")
		require.NoError(t, os.WriteFile(root, s.root, 0o600))
		for _, which := range conformance.GRPCCases {
			require.NoError(t, conformance.GRPC(t.Context(), which, s.secure.String(), host, root))
		}
	})
}

// judge expects a failure of each case that testdata/h2spec.txt excepts, and of no other.
func judge(t *testing.T, cases []conformance.Case) {
	t.Helper()
	reasons := exceptions()
	for _, c := range cases {
		reason, excepted := reasons[c.ID]
		delete(reasons, c.ID)
		switch {
		case excepted:
			assert.NotEmpty(t, reason, c.ID)
			assert.True(t, c.Failure != "" || c.Skipped, "%s passes: remove its exception", c.ID)
		case c.Skipped:
			t.Errorf("%s (%s) was skipped", c.ID, c.Title)
		default:
			assert.Empty(t, c.Failure, "%s: %s", c.ID, c.Title)
		}
	}
	assert.Empty(t, reasons, "exceptions of cases that there are not")
}
