package harness

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// Options configure a System.
type Options struct {
	// Name distinguishes systems that run side by side.
	Name string
	// Dir takes logs, data and credentials; empty for a new one below the
	// system's directory for temporary files.
	Dir string
	// Out gets the progress of long steps.
	Out io.Writer
	// ControlPlaneArgs are added to those of `pipeops-controlplane serve`.
	ControlPlaneArgs []string
	// GatewayDomain gives the control plane a gateway with its own CA.
	GatewayDomain string
	// Kubernetes has options of our own cluster; its name and output are the system's.
	Kubernetes cluster.Options
	// AgentLogLevel is debug when empty.
	AgentLogLevel string
	// AgentVersion is what the agent's image is built as; that of the source when empty.
	AgentVersion string
	// AgentSettings are added to those that the agent needs.
	AgentSettings map[string]string
	// ListenIP is the address of this machine at which the control plane listens;
	// empty for the one at which the cluster, which is then started first, reaches it.
	ListenIP string
	// Theirs is a cluster that is there already; nil for one of our own.
	Theirs *Theirs
}

// System is the whole product with its real parts. Each part is started by its
// own method, in the order of the methods.
type System struct {
	Options
	Binaries Binaries
	Kube     *Kube
	Cluster  *cluster.Cluster // nil when it is Theirs
	Broker   *broker.Broker

	hostIP  string
	control *Program
	applied *applied
	// EnrolmentToken is the one that the agent was deployed with, and removes from its Secret.
	EnrolmentToken string
	ownDir         bool
	claim          claim // to the name
	closers        []func(context.Context) error

	mu         sync.Mutex
	violations []error
}

// New returns a System in which nothing runs yet. The first part that starts waits until no other
// process has a System of that name, such as the same tests of another checkout: both would use,
// and at their end remove, the same cluster.
func New(opts Options) (*System, error) {
	s := &System{Options: opts, applied: &applied{}, hostIP: opts.ListenIP}
	if s.Dir == "" {
		dir, err := os.MkdirTemp("", "pipeops-"+opts.Name+"-")
		if err != nil {
			return nil, err
		}
		s.Dir, s.ownDir = dir, true
	}
	return s, os.MkdirAll(s.Dir, 0o700)
}

// StartKubernetes brings up the cluster, or looks at theirs.
func (s *System) StartKubernetes(ctx context.Context) (err error) {
	if s.Theirs != nil {
		return s.openTheirs(ctx)
	}
	if err := s.claim.take(ctx, s.Name, s.Out); err != nil {
		return err
	}
	options := s.Kubernetes
	options.Name, options.Out = s.Name, s.Out
	if s.Cluster, err = cluster.Up(ctx, options); err != nil {
		return err
	}
	s.onClose(s.Cluster.Down)
	if s.ListenIP == "" {
		s.hostIP = s.Cluster.HostIP()
	}
	s.Kube, err = openKube(s.Cluster.Kubeconfig())
	return err
}

// openTheirs looks at a cluster that is there.
func (s *System) openTheirs(ctx context.Context) error {
	objects, err := s.agentObjects()
	if err != nil {
		return err
	}
	s.Kube, s.hostIP, err = s.Theirs.open(ctx, append(objects, namespaceObject(s.Theirs.Namespace)))
	return err
}

// StartBroker brings up a private RabbitMQ.
func (s *System) StartBroker(ctx context.Context) (err error) {
	if s.Broker, err = broker.Up(ctx, s.Out); err != nil {
		return err
	}
	s.onClose(s.Broker.Down)
	return nil
}

// Kubeconfig returns the file with which kubectl reaches the cluster.
func (s *System) Kubeconfig() string {
	if s.Theirs != nil {
		return s.Theirs.Kubeconfig
	}
	return s.Cluster.Kubeconfig()
}

// LoadImage loads an image into the cluster and returns the name that pods use for it.
func (s *System) LoadImage(ctx context.Context, ref string, img v1.Image) (string, error) {
	if s.Theirs != nil {
		return s.Theirs.push(ctx, ref, img)
	}
	return ref, s.Cluster.LoadImage(ctx, ref, img)
}

// onClose notes what Close has to undo.
func (s *System) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// Close takes everything down, in the reverse order, and leaves nothing. It does not stop at an
// error.
func (s *System) Close(ctx context.Context) error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i](ctx))
	}
	s.closers = nil
	errs = append(errs, s.claim.release())
	if s.ownDir {
		errs = append(errs, os.RemoveAll(s.Dir))
	}
	return errors.Join(errs...)
}

// path returns a file in the system's directory.
func (s *System) path(name string) string { return filepath.Join(s.Dir, name) }
