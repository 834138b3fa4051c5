package provider

import (
	"os"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) {
	render.Child() // of releases
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}
