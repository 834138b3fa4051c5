package conformance

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// GRPCCases are gRPC's interoperability tests that need no cloud's credentials and no load
// balancer. See https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md.
var GRPCCases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server",
	"cancel_after_begin", "cancel_after_first_response", "status_code_and_message", "special_status_message", "custom_metadata",
	"unimplemented_method", "unimplemented_service", "rpc_soak", "channel_soak",
}

// ServeGRPC serves the tests' service without TLS until the test ends, and returns its address.
func ServeGRPC(t *testing.T) string {
	t.Helper()
	program, err := programs.GRPCServer.Build(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// GRPC runs a case of grpc-go's client against a server with TLS, whose certificate is of a CA in a
// PEM file, for a name. The error has what the client printed.
func GRPC(ctx context.Context, which, address, name, roots string) error {
	program, err := programs.GRPCClient.Build(ctx)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "-test_case="+which, "-server_host="+host, "-server_port="+port,
		"-use_tls", "-use_test_ca", "-ca_file="+roots, "-server_host_override="+name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gRPC's %s at %s: %w\n%s", which, address, err, out)
	}
	return nil
}
