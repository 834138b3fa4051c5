package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// Ports of the control plane, on the address that the cluster reaches.
const (
	apiPort    = "8443"
	tunnelPort = "7000"
	edgePort   = "8444"
	webPort    = "443"
	plainPort  = "80"
)

// startTimeout is how long the control plane may take to be ready.
const startTimeout = 5 * time.Minute

// APIURL returns where the agent reaches the control plane.
func (s *System) APIURL() string { return "https://" + net.JoinHostPort(s.hostIP, apiPort) }

// HostIP returns the address at which the cluster reaches this machine.
func (s *System) HostIP() string { return s.hostIP }

// StartControlPlane starts the control plane with frps inside it and waits until it is ready.
func (s *System) StartControlPlane(ctx context.Context) error {
	at := func(port string) string { return net.JoinHostPort(s.hostIP, port) }
	args := append([]string{"serve", "--data-dir", s.DataDir(), "--log-level", "debug",
		"--api-listen", at(apiPort), "--tunnel-listen", at(tunnelPort), "--edge-listen", at(edgePort),
		"--advertise-api", s.APIURL(), "--advertise-tunnel", at(tunnelPort), "--advertise-edge", at(edgePort),
	}, s.ControlPlaneArgs...)
	if s.GatewayDomain != "" {
		// No DNS server listens at that port: no host is proven by DNS.
		args = append(args, "--gateway-domain", s.GatewayDomain, "--gateway-ca", "internal",
			"--gateway-https", at(webPort), "--gateway-http", at(plainPort), "--gateway-resolver", at(plainPort))
	}
	var env []string
	if s.Broker != nil { // what is not about announcements goes without
		runnerURL := s.path("runner-broker-url")
		if err := os.WriteFile(runnerURL, []byte(s.Broker.URL(broker.UserRunner)), 0o600); err != nil {
			return err
		}
		args = append(args, "--broker-ca", s.Broker.CAFile(), "--runner-broker-url-file", runnerURL)
		env = append(env, "PIPEOPS_BROKER_URL="+s.Broker.URL(broker.UserControlPlane)) // a password is not for arguments
	}
	s.control = s.NewProgram("controlplane", s.Binaries.ControlPlane, args, env)
	s.onClose(func(context.Context) error { return s.control.Close() })
	return s.RestartControlPlane(ctx)
}

// Visitor returns a client that finds every host at the gateway, and trusts the gateway's CA.
func (s *System) Visitor(ctx context.Context) (*http.Client, error) {
	ca, err := s.ControlPlane(ctx, "gateway", "ca", "get")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	return VisitorAt(s.hostIP, roots), nil
}

// VisitorAt returns a client that finds every host at an address.
func VisitorAt(ip string, roots *x509.CertPool) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(ip, port))
		},
	}}
}

// KillControlPlane ends the control plane as a crash would.
func (s *System) KillControlPlane() error { return s.control.Kill() }

// RestartControlPlane starts the control plane again with the same data.
func (s *System) RestartControlPlane(ctx context.Context) error {
	if err := s.control.Start(); err != nil {
		return err
	}
	return s.AwaitControlPlane(ctx)
}

// AwaitControlPlane waits until the control plane reports that it is ready.
func (s *System) AwaitControlPlane(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := Eventually(ctx, "the control plane is ready", func(ctx context.Context) error {
		if !s.control.Running() {
			cancel()
			return fmt.Errorf("it ended; its last lines:\n%s", s.control.LastLines(10))
		}
		_, err := s.Readiness(ctx)
		return err
	})
	return err
}

// Readiness returns the checks of the control plane's /readyz.
func (s *System) Readiness(ctx context.Context) (map[string]any, error) {
	return Readiness(ctx, s.APIURL(), s.path("data/ca.pem"))
}

// Readiness returns the checks of /readyz of a control plane whose CA is in a file. It returns an
// error if that is not ready.
func Readiness(ctx context.Context, url, caFile string) (map[string]any, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/readyz answers %d: %s", resp.StatusCode, body)
	}
	var answer map[string]any
	return answer, json.Unmarshal(body, &answer)
}

// DataDir returns the control plane's data directory.
func (s *System) DataDir() string { return s.path("data") }

// ControlPlane runs a subcommand of pipeops-controlplane and returns its standard output.
func (s *System) ControlPlane(ctx context.Context, args ...string) (string, error) {
	return run(ctx, nil, s.Binaries.ControlPlane, append(args, "--data-dir", s.DataDir())...)
}

// ControlPlaneLog returns where the control plane's log is.
func (s *System) ControlPlaneLog() string { return s.control.log }

// ControlPlanePID returns the control plane's process, 0 before it was started.
func (s *System) ControlPlanePID() int { return s.control.PID() }

// ControlPlanePeakMemory returns the most that the control plane's process has had resident since
// ForgetPeakMemory, or ever.
func (s *System) ControlPlanePeakMemory() (int64, error) {
	kib, err := statusField(s.ControlPlanePID(), "VmHWM")
	return kib << 10, err
}
