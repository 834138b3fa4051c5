package metrics

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func open(t *testing.T, cfg PortsConfig) *Ports {
	t.Helper()
	cfg.Log, cfg.Gatherer = zerolog.Nop(), NewRegistry("test", "1.2.3")
	p, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	await.Background(t, "the ports", p.Run)
	return p
}

func get(t *testing.T, at net.Addr, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestPorts_OffByDefault(t *testing.T) {
	p := open(t, PortsConfig{})
	m, pprof := p.Addrs()
	assert.Nil(t, m)
	assert.Nil(t, pprof)
	require.NoError(t, (*Ports)(nil).Close())
}

func TestPorts_ServeTheirOwn(t *testing.T) {
	m, pprof := open(t, PortsConfig{Metrics: "127.0.0.1:0", Pprof: ":0"}).Addrs()
	assert.True(t, pprof.(*net.TCPAddr).IP.IsLoopback(), "without a host it is this machine's")
	status, body := get(t, m, "/metrics")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `test_build_info{go=`)
	status, body = get(t, pprof, "/debug/pprof/goroutine?debug=1")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "goroutine profile")
	for at, paths := range map[net.Addr][]string{m: {"/debug/pprof/", "/"}, pprof: {"/metrics", "/debug/pprof/cmdline", "/"}} {
		for _, path := range paths {
			status, _ := get(t, at, path)
			assert.Equal(t, http.StatusNotFound, status, path)
		}
	}
}

func TestPorts_NameTakenPort(t *testing.T) {
	m, _ := open(t, PortsConfig{Metrics: "127.0.0.1:0"}).Addrs()
	_, err := Open(t.Context(), PortsConfig{Metrics: m.String(), MetricsName: "--metrics-listen", Log: zerolog.Nop()})
	require.ErrorContains(t, err, "--metrics-listen: ")
	assert.ErrorContains(t, CheckAddress("9090"), "not host:port")
	assert.NoError(t, CheckAddress(""))
	assert.NoError(t, CheckAddress("127.0.0.1:9090"))
}

func TestRead(t *testing.T) {
	r := NewRead("test", func(set func(string, float64, ...string)) {
		set("things", 3, "red")
		set("unknown", 1)
	}).Gauge("things", "Things.", "colour")
	assert.Equal(t, 1, testutil.CollectAndCount(r))
	assert.InDelta(t, 3, testutil.ToFloat64(r), 0)
}

func TestFamilies(t *testing.T) {
	r := NewRegistry("test", "1")
	r.MustRegister(NewRead("test", nil).Gauge("things", `Things, "all".`, "colour", "size"))
	families := Families(r)
	assert.Contains(t, families, Family{"test_build_info", "Which version runs; always 1.", []string{}})
	assert.Contains(t, families, Family{"test_things", `Things, "all".`, []string{"colour", "size"}})
}

func TestOnly(t *testing.T) {
	got, err := Only(NewRegistry("test", "1"), "test_", "go_goroutines").Gather()
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, "go_goroutines", got[0].GetName())
	assert.Equal(t, "test_build_info", got[1].GetName())
}
