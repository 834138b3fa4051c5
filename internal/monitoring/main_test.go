package monitoring_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// web is the App of the tests.
var web = runnerapi.Key{Namespace: "production", Name: "web"}

// apps has the App web, and manages its namespace and another.
type apps struct{}

func (apps) Get(_ context.Context, key runnerapi.Key) (runnerapi.App, error) {
	if key != web {
		return runnerapi.App{}, problem.Errorf(problem.NotFound, "deploy it", "there is no App %s", key)
	}
	return runnerapi.App{Namespace: key.Namespace, Name: key.Name}, nil
}

func (apps) Manages(_ context.Context, namespace string) (bool, error) {
	return namespace == web.Namespace || namespace == "beta", nil
}

// reading returns a Reader of a cluster with one component, or with none.
func reading(component string, f *monitoringtest.Fake) *monitoring.Reader {
	return monitoring.New(apps{}, func(_ context.Context, asked string) (*monitoring.Component, error) {
		if f == nil || asked != component {
			return nil, nil //nolint:nilnil // there is none
		}
		return &monitoring.Component{Namespace: "monitoring", URL: f.URL}, nil
	})
}

// answering is a fake component with one answer.
func answering(t *testing.T, path string, answer func(url.Values) any) *monitoringtest.Fake {
	t.Helper()
	f := monitoringtest.Start(t)
	f.Answer(path, answer)
	return f
}

// problemOf returns the problem that an error is.
func problemOf(t *testing.T, err error) *problem.Error {
	t.Helper()
	p := &problem.Error{}
	require.ErrorAs(t, err, &p)
	require.NotEmpty(t, p.Fix)
	return p
}
