package agent_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/apps"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// output is what a command has printed so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestHostCreate follows a host from the command line to its certificate. The records that the
// command prints are those that the control plane looks for.
func TestHostCreate(t *testing.T) {
	dns := dnstest.Start(t)
	p := planetest.Start(t, withGatewayOf(dns))
	run(t, p, t.TempDir(), token(t, p), routesOn)
	id := strings.ToLower(p.AwaitOnline(t, time.Time{}))
	a := publicApp(t, "own", "first.example.com")
	awaitRoutes(t, p, "first.example.com")
	file := filepath.Join(t.TempDir(), "runner.json")
	creds := issueRunner(t, p, "ops")
	require.NoError(t, creds.Write(file))

	said := &output{}
	host := func(ctx context.Context, args ...string) error {
		cmd := apps.NewHost(&cmdutil.CLI{Streams: cmdutil.Streams{Out: io.Discard, Err: said}, Defaults: cmdutil.Defaults{Credentials: file}, Patience: patience})
		cmd.SetArgs(append(args, "-n", "production"))
		return cmd.ExecuteContext(ctx)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- host(ctx, "create", name, "own", "own.example.com") }()
	says := func(text string) {
		t.Helper()
		await.Until(t, "it prints "+text, func() bool { return strings.Contains(said.String(), text) })
	}
	says("waits for the DNS record")
	assert.Regexp(t, `own\.example\.com +CNAME +`+id+`\.`+gatewayDomain, said.String())
	assert.Regexp(t, `_pipeops\.own\.example\.com +TXT +pipeops-agent=`+id, said.String())
	dns.Set(t, "own.example.com", "CNAME "+id+"."+gatewayDomain+".")
	p.Clock.Advance(time.Minute) // the control plane looks again
	says("proof cname, certificate ready; waits for the first response")
	stop()
	exit := &cmdutil.ExitError{}
	require.ErrorAs(t, await.Receive(t, done, "the end of the command"), &exit)
	assert.Equal(t, cmdutil.ExitInterrupted, exit.Code)
	assert.Contains(t, said.String(), "pipeops-runner host create "+name+" own own.example.com -n production")

	require.NoError(t, kubetest.ControlPlane(t).Client.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	require.Len(t, a.Spec.Ingress.Hosts, 2)
	assert.Equal(t, "own.example.com", a.Spec.Ingress.Hosts[1].Host)

	second := publicApp(t, "second", "second.example.com")
	require.ErrorAs(t, host(t.Context(), "create", name, "second", "first.example.com"), &exit)
	assert.ErrorContains(t, exit, "an older route of this cluster has the same host and path")
	assert.Equal(t, "to take the host back: pipeops-runner host delete "+name+" second first.example.com -n production", exit.Fix)
	require.NoError(t, host(t.Context(), "delete", name, "second", "first.example.com", "--no-wait"))
	require.ErrorContains(t, host(t.Context(), "delete", name, "second", "first.example.com", "--no-wait"), "it has second.example.com")
	require.NoError(t, host(t.Context(), "delete", name, "own", "own.example.com", "--no-wait"))
	require.NoError(t, kubetest.ControlPlane(t).Client.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	require.Len(t, a.Spec.Ingress.Hosts, 1)
	require.NoError(t, host(t.Context(), "delete", name, "second", "second.example.com", "--no-wait"))
	require.NoError(t, kubetest.ControlPlane(t).Client.Get(t.Context(), client.ObjectKeyFromObject(second), second))
	require.Nil(t, second.Spec.Ingress)
}
