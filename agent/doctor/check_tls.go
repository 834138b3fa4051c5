package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// driftWarning is a clock drift that works but should be fixed.
const driftWarning = 30 * time.Second

// fixMTU is for a handshake whose first large packets do not arrive, though TCP connects.
const fixMTU = "if large packets are lost on the way, lower the MTU, for example with `ip link set dev eth0 mtu 1400`, " +
	"or let ICMP \"fragmentation needed\" through; else have a firewall that inspects TLS let this host through"

const fixClock = "set this machine's clock, for example with `timedatectl set-ntp true`"

// tls verifies the control plane's certificate as the agent does.
func (n *network) tls(ctx context.Context) []Finding {
	trust, whose, err := n.trust()
	if err != nil {
		return failure(err, fixConfiguration)
	}
	answer, err := n.get(ctx, trust, "/healthz")
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() && n.via == nil {
		return failed("TCP connects to "+n.target.Host+", but TLS gets no answer", fixMTU)
	}
	if err != nil {
		return failure(n.explain(err), "look at what is between, a proxy for example")
	}
	leaf := answer.tls.PeerCertificates[0]
	return ok(fmt.Sprintf("%s, trusted by %s, certificate until %s",
		tls.VersionName(answer.tls.Version), whose, leaf.NotAfter.UTC().Format(time.DateOnly)))
}

// trust returns the agent's TLS trust in the control plane, and a description of its source.
func (n *network) trust() (cfg *tls.Config, whose string, err error) {
	roots, err := n.Config.CAPool()
	if err != nil {
		return nil, "", err
	}
	if n.id != nil {
		cfg = n.id.ControlPlaneTLS(roots)
		cfg.Time = n.Now
		return cfg, "the agent's identity", nil
	}
	trust := controlapi.Trust{Roots: roots, Now: n.Now}
	whose = "this system's CAs"
	if roots != nil {
		whose = "PIPEOPS_CA_FILE"
	}
	if token, err := controlapi.ParseToken(n.Config.Token); err == nil && token.Fingerprint != "" {
		trust.Fingerprint, whose = token.Fingerprint, "the token's fingerprint"
	}
	cfg, err = trust.TLSConfig(n.Config.ControlPlaneURL)
	return cfg, whose, err
}

// clock compares this machine's clock with the control plane's. It does not verify the certificate,
// which fails when the clock is wrong. It sends no sensitive data, so the worst result of a false
// server is a clock that is set wrong.
func (n *network) clock(ctx context.Context) []Finding {
	answer, err := n.get(ctx, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, "/healthz") //nolint:gosec // see above
	if err != nil {
		return skipped("the control plane sent no time")
	}
	theirs, err := http.ParseTime(answer.header.Get("Date"))
	if err != nil {
		return skipped("the control plane sent no time")
	}
	ours := n.Now()
	if skewed := controlapi.ClockSkew(ours, theirs); skewed != nil {
		return failure(skewed, fixClock)
	}
	drift := ours.Sub(theirs).Abs().Truncate(time.Second) // a Date header has seconds
	if drift > driftWarning {
		return warning(fmt.Sprintf("is %s off the control plane's", drift), fixClock)
	}
	return ok("agrees with the control plane's")
}

type answer struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState
}

// get sends a request to the control plane, through the proxy if there is one.
func (n *network) get(ctx context.Context, trust *tls.Config, path string) (answer, error) {
	trust = trust.Clone()
	trust.Certificates = nil // the request needs no client identity
	transport := n.proxies.Use(&http.Transport{TLSClientConfig: trust, DisableKeepAlives: true})
	client := http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.target.JoinPath(path).String(), nil)
	if err != nil {
		return answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return answer{resp.StatusCode, resp.Header, body, resp.TLS}, err
}
