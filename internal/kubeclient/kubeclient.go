// Package kubeclient prepares the Kubernetes API clients of the agent's parts.
package kubeclient

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// Config returns a copy of a configuration for a part of the agent. The API server does the
// fairness (API Priority and Fairness), and its warnings are for people with kubectl.
func Config(given *rest.Config) *rest.Config {
	rc := rest.CopyConfig(given)
	rc.QPS, rc.Burst = -1, 0
	rc.WarningHandler = rest.NoWarnings{}
	rc.UserAgent = cmp.Or(rc.UserAgent, objectmeta.FieldManager)
	return rc
}

// New returns what clients are made of: a Config, and connections that they share.
func New(given *rest.Config) (*rest.Config, *http.Client, error) {
	rc := Config(given)
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return rc, hc, nil
}
