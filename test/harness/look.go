package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// timelineTimeout is how long an event may take to the timeline.
const timelineTimeout = 5 * time.Minute

// AwaitTimeline waits until the control plane's timeline of an agent holds all of these, and
// returns it.
func (s *System) AwaitTimeline(ctx context.Context, agent string, want ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timelineTimeout)
	defer cancel()
	err = Eventually(ctx, "the timeline is complete", func(ctx context.Context) (err error) {
		if out, err = s.ControlPlane(ctx, "agent", "get", agent); err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %s in:\n%s", w, out)
			}
		}
		return nil
	})
	return out, err
}

// LoadApp builds one of the test apps of test/apps, loads its image and returns the image's name.
func (s *System) LoadApp(ctx context.Context, name string) (string, error) {
	return s.loadProgram(ctx, cluster.Program{Package: "./test/apps/" + name, Ref: "apps.test/" + name})
}

// loadProgram builds a program's image, loads it under a name that depends on its content, and
// returns that name.
func (s *System) loadProgram(ctx context.Context, program cluster.Program) (string, error) {
	img, err := cluster.BuildProgram(ctx, program)
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	if err != nil {
		return "", err
	}
	return s.LoadImage(ctx, program.Ref+":"+digest.Hex[:12], img)
}

// LoadProgramAs builds a program of cmd or test/apps and loads its image under
// a name that the documentation uses.
func (s *System) LoadProgramAs(ctx context.Context, pkg, ref string) error {
	name := path.Base(pkg)
	if path.Base(path.Dir(pkg)) == "cmd" { // as scripts/image names it
		name = "pipeops-" + name
	}
	img, err := cluster.BuildProgram(ctx, cluster.Program{Package: pkg, Name: name, Ref: ref})
	if err != nil {
		return err
	}
	_, err = s.LoadImage(ctx, ref, img)
	return err
}

// Kubectl returns a kubectl to show to a person.
func (s *System) Kubectl() string {
	if s.Cluster == nil {
		return "kubectl"
	}
	return strings.Join(s.Cluster.KubectlCommand(context.Background()).Args, " ")
}

// SaveLogs copies what helps to analyse a failure.
func (s *System) SaveLogs(ctx context.Context, dir string) error {
	var errs []error
	logs, err := filepath.Glob(filepath.Join(s.Dir, "*.log"))
	errs = append(errs, err)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o600))
	}
	if s.Kube != nil {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "agent.log"), []byte(s.AgentLog(ctx, 1000)), 0o600))
	}
	return errors.Join(errs...)
}
