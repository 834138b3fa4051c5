package install

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	k3sVersion  = "v1.36.4+k3s1"
	joinToken   = "K10fake::server:join-7f1c9a"
	closeBounds = 2 * time.Minute
)

// world is everything around the machines that install.sh runs on: the network,
// the download site, a control plane, and what the fake k3s starts.
type world struct {
	*harness.System
	network *machine.Network
	site    *site
	fake    *httptest.Server
	sums    map[string]string // settings with the checksums of the fakes, which the script cannot have

	mu      sync.Mutex
	cluster time.Duration // how long the last cluster took to start
	api     net.Listener
}

var shared struct {
	sync.Once
	*world
	err error
}

func TestMain(m *testing.M) {
	if err := inputs.Depend("scripts"); err != nil { // which bash reads
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := inputs.Main(m)
	if err := allRan(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if shared.world != nil {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, "clean-up:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// theWorld starts everything for the first test that asks.
func theWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots machines and clusters, as root")
	}
	shared.Do(func() { shared.world, shared.err = newWorld(context.Background()) })
	require.NoError(t, shared.err)
	return shared.world
}

func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
			w = nil
		}
	}()
	if err := cluster.Build(ctx, false, os.Stderr); err != nil {
		return w, err
	}
	if w.network, err = machine.NewNetwork(); err != nil {
		return w, err
	}
	w.System, err = harness.New(harness.Options{Name: fmt.Sprintf("test-%d-install", os.Getpid()), Out: os.Stderr, ListenIP: w.network.Host})
	if err != nil {
		return w, err
	}
	if w.Binaries, err = harness.Build(ctx); err != nil {
		return w, err
	}
	if err := w.StartBroker(ctx); err != nil {
		return w, err
	}
	if err := w.StartControlPlane(ctx); err != nil {
		return w, err
	}
	if w.site, err = newSite(w.network.Host); err != nil {
		return w, err
	}
	if err := w.publish(ctx); err != nil {
		return w, err
	}
	return w, w.serveFake()
}

// publish fills the download site.
func (w *world) publish(ctx context.Context) error {
	k3s, err := programs.Program{Package: "./test/install/fakek3s"}.Build(ctx)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for name, path := range map[string]string{
		"k3s": k3s, "k3s-install": "testdata/fake-k3s-install.sh", "k3d": "testdata/fake-k3d.sh",
		"agent.yaml": "../../deployments/agent.yaml", "install.sh": "../../scripts/install.sh", "join-worker.sh": "../../scripts/join-worker.sh",
		"uninstall.sh": "../../scripts/uninstall.sh",
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = content
	}
	w.sums = map[string]string{}
	for setting, name := range map[string]string{"K3S": "k3s", "K3S_INSTALL": "k3s-install", "K3D": "k3d"} {
		w.sums["PIPEOPS_"+setting+"_SHA256"] = fmt.Sprintf("%x", sha256.Sum256(files[name]))
	}
	w.site.put(k3sAssets, "sha256sum-amd64.txt", map[string][]byte{"k3s": files["k3s"]})
	w.site.put(k3sSource, "install.sh.sha256sum", map[string][]byte{"install.sh": files["k3s-install"]})
	w.site.put("/github.com/k3d-io/k3d/releases/download/v5.8.3/", "checksums.txt", map[string][]byte{"k3d-linux-amd64": files["k3d"]})
	w.site.put(releases+"dev/", "SHA256SUMS", map[string][]byte{
		"agent.yaml": files["agent.yaml"], "install.sh": files["install.sh"], "join-worker.sh": files["join-worker.sh"],
		"uninstall.sh": files["uninstall.sh"],
	})
	return nil
}

func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeBounds)
	defer cancel()
	var errs []error
	if w.fake != nil {
		w.fake.Close()
	}
	if w.site != nil {
		w.site.Close()
	}
	if w.System != nil {
		errs = append(errs, w.Close(ctx))
	}
	if w.network != nil {
		errs = append(errs, w.network.Close())
	}
	return errors.Join(errs...)
}

// listen opens a port that machines reach.
func (w *world) listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(w.network.Host, "0"))
	require.NoError(t, err)
	return l
}
