package harness

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenSeconds is the life of the token of an agent outside: longer than any run.
const tokenSeconds = 48 * 3600

// ApplyAgentObjects applies deployments/agent.yaml but for the Deployment: for an
// agent that runs outside the cluster with the rights that one has.
func (s *System) ApplyAgentObjects(ctx context.Context) error {
	objects, err := s.agentObjects()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if obj.GetKind() == "Deployment" && obj.GetName() == agentObject {
			continue
		}
		if err := s.Kube.Apply(ctx, obj); err != nil {
			return fmt.Errorf("deployments/agent.yaml: %w", err)
		}
	}
	return nil
}

// AgentKubeconfig writes a kubeconfig with the agent's own rights, by which it
// reaches the API server at an address of ours.
func (s *System) AgentKubeconfig(ctx context.Context, server, file string) error {
	answer, err := s.Kube.Clientset.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentObject,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("a token for the agent: %w", err)
	}
	ca := s.Kube.Config.CAData
	if len(ca) == 0 {
		if ca, err = os.ReadFile(s.Kube.Config.CAFile); err != nil {
			return err
		}
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: agent
contexts: [{name: agent, context: {cluster: cluster, user: agent}}]
clusters: [{name: cluster, cluster: {server: %q, tls-server-name: kubernetes, certificate-authority-data: %s}}]
users: [{name: agent, user: {token: %q}}]
`, server, base64.StdEncoding.EncodeToString(ca), answer.Status.Token)
	return os.WriteFile(file, []byte(text), 0o600)
}

// Agent runs a subcommand of pipeops-agent with more environment and returns its standard output.
func (s *System) Agent(ctx context.Context, env []string, args ...string) (string, error) {
	return run(ctx, env, s.Binaries.Agent, args...)
}
