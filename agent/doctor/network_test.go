package doctor_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func TestExamine_TokenStaysUnused(t *testing.T) {
	p := planetest.Start(t)
	report := doctor.Examine(t.Context(), options(t, p))
	requireOnly(t, report, "kubernetes") // there is none here
	assert.Contains(t, finding(t, report, "token").Detail, "good for 1 more registrations, until ")
	assert.Contains(t, finding(t, report, "tls").Detail, "the token's fingerprint")
	assert.Contains(t, finding(t, report, "tunnel").Detail, "answers and is the control plane's")
	assert.Equal(t, doctor.Skipped, finding(t, report, "registration").Status)
	assert.Equal(t, doctor.Skipped, finding(t, report, "permissions").Status)
	tokens, err := p.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Zero(t, tokens[0].Uses)
}

func TestExamine_ReportsFaults(t *testing.T) {
	p, other := planetest.Start(t), planetest.Start(t)
	for name, c := range map[string]struct {
		change      func(*testing.T, *doctor.Options)
		failed      string
		detail, fix string
	}{
		"no control plane": {func(_ *testing.T, o *doctor.Options) { o.Config.ControlPlaneURL = "" },
			"proxy", "not known", "PIPEOPS_CONTROL_PLANE_URL"},
		"unknown name": {func(_ *testing.T, o *doctor.Options) { o.Config.ControlPlaneURL = "https://nowhere.invalid" },
			"dns", "nowhere.invalid", "DNS"},
		"nothing listens": {func(t *testing.T, o *doctor.Options) { o.Config.ControlPlaneURL = "https://" + freeport.Address(t) },
			"tcp", "refused", "serve"},
		"large packets are lost": {func(t *testing.T, o *doctor.Options) {
			l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, l.Close()) })
			o.Config.ControlPlaneURL, o.Timeout = "https://"+l.Addr().String(), time.Second
		}, "tls", "but TLS gets no answer", "mtu 1400"},
		"another control plane": {func(_ *testing.T, o *doctor.Options) { o.Config.ControlPlaneURL = other.URL() },
			"tls", "fingerprint", "made the token"},
		"dead proxy": {func(t *testing.T, o *doctor.Options) {
			t.Setenv("HTTPS_PROXY", "http://somebody:canary@"+freeport.Address(t))
			t.Setenv("NO_PROXY", "")
			o.Config.ControlPlaneURL = "https://cp.example.com" // a proxy is not asked for this machine
		}, "proxy", "somebody:xxxxx@127.0.0.1", "NO_PROXY"},
		"mistyped token": {func(_ *testing.T, o *doctor.Options) { o.Config.Token = "pipeops_oops" },
			"token", "not an enrolment token", "copy the whole line"},
		"expired token": {func(t *testing.T, o *doctor.Options) {
			o.Config.Token = p.Token(t, administration.TokenOptions{TTL: time.Nanosecond})
		}, "token", "expired at", "token create"},
		"no token": {func(_ *testing.T, o *doctor.Options) { o.Config.Token = "" },
			"token", "AGENT_TOKEN is not set", "token create"},
		"clock two hours ahead": {func(_ *testing.T, o *doctor.Options) {
			o.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		}, "clock", "2h0m", "timedatectl"},
		"identity for everybody to read": {func(t *testing.T, o *doctor.Options) {
			file := identity.File{Dir: o.Config.StateDir}
			saved, err := file.Save(t.Context(), map[string][]byte{"key.pem": []byte("x")}, "")
			require.NoError(t, err)
			require.True(t, saved)
			require.NoError(t, os.Chmod(file.String(), 0o644))
		}, "identity", "read by others", "chmod 600"},
		"unreadable CA": {func(t *testing.T, o *doctor.Options) {
			o.Config.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		}, "tls", "PIPEOPS_CA_FILE", "config get"},
		"wrong settings": {func(_ *testing.T, o *doctor.Options) {
			o.ConfigErr = errors.Join(errors.New("LOG_LEVEL: wrong (fix: use info)"), errors.New("CLUSTER_NAME: none (fix: choose one)"))
		}, "configuration", "LOG_LEVEL: wrong", "use info"},
		"self-update without a key": {func(_ *testing.T, o *doctor.Options) { o.Config.SelfUpdate = true },
			"configuration", "PIPEOPS_UPDATE_KEYS: is not set", "PIPEOPS_SELF_UPDATE=false"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := options(t, p)
			c.change(t, &opts)
			report := doctor.Examine(t.Context(), opts)
			found := finding(t, report, c.failed)
			assert.Equal(t, doctor.Failed, found.Status, "%+v", found)
			assert.Contains(t, found.Detail, c.detail)
			assert.Contains(t, found.Fix, c.fix)
			assert.False(t, report.Healthy)
			for _, f := range report.Findings {
				assert.NotContains(t, f.Detail+f.Fix, "canary")
			}
		})
	}
}

func TestExamine_OtherServer(t *testing.T) {
	notOurs := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(notOurs.Close)
	opts := options(t, planetest.Start(t))
	opts.Config.ControlPlaneURL, opts.Config.Token = notOurs.URL, ""
	opts.Config.CAFile = writePEM(t, notOurs.Certificate().Raw)
	report := doctor.Examine(t.Context(), opts)
	assert.Contains(t, finding(t, report, "tls").Detail, "PIPEOPS_CA_FILE")
	assert.Contains(t, finding(t, report, "control-plane").Detail, "not a control plane: 404")
	assert.Contains(t, finding(t, report, "token").Detail, "AGENT_TOKEN is not set")
}
