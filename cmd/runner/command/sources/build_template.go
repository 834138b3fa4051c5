package sources

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// buildTemplate is the flags that define what builds, and sources that build, make.
type buildTemplate struct {
	runnerapi.BuildTemplate
	caMap, caSecret string
	deadline, keep  time.Duration
	args            []string
}

// flags adds the flags; context is the name of the flag for the build's context.
func (t *buildTemplate) flags(f *pflag.FlagSet, context string) {
	f.StringVar(&t.Dockerfile, "dockerfile", "", "path of the Dockerfile, relative to "+context+" (default: Dockerfile)")
	f.StringVar(&t.Target, "target", "", "stage of the Dockerfile to stop at")
	f.StringArrayVar(&t.args, "arg", nil, "build argument NAME=VALUE, not secret; may be repeated")
	f.StringVar(&t.Image, "image", "", "image to push, as REGISTRY/REPOSITORY[:TAG]; without a tag, the commit is the tag")
	f.StringVar(&t.PushCredentials, "push-credentials", "", "pull secret of a user that may push")
	f.StringVar(&t.PullCredentials, "pull-credentials", "", "pull secret for base images")
	f.StringVar(&t.caMap, "ca-config-map", "", "config map with the certificates of the registry's CA")
	f.StringVar(&t.caSecret, "ca-secret", "", "secret with these certificates in its key ca.crt, instead of a config map")
	f.StringVar(&t.Resources.Requests.CPU, "cpu", "", "CPU request of the build, e.g. 500m")
	f.StringVar(&t.Resources.Requests.Memory, "memory", "", "memory request of the build, e.g. 512Mi")
	f.StringVar(&t.Resources.Limits.CPU, "limit-cpu", "", "CPU limit of the build")
	f.StringVar(&t.Resources.Limits.Memory, "limit-memory", "", "memory limit of the build")
	cli.DurationVar(f, &t.deadline, "deadline", 0, "time limit of the build (default 1h)")
	cli.DurationVar(f, &t.keep, "keep", 0, "how long to keep a finished build and its log (default 7d)")
	f.IntVar(&t.History, "history", 0, "number of builds to keep (default 5)")
}

// complete makes the template of the flags.
func (t *buildTemplate) complete() error {
	for _, arg := range t.args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("--arg %s: expected NAME=VALUE", name)
		}
		if t.Args == nil {
			t.Args = map[string]string{}
		}
		t.Args[name] = value
	}
	if t.caMap != "" || t.caSecret != "" {
		t.CA = &runnerapi.BuildCA{ConfigMap: t.caMap, Secret: t.caSecret}
	}
	if t.deadline != 0 {
		seconds := int64(t.deadline / time.Second)
		t.DeadlineSeconds = &seconds
	}
	if t.keep != 0 {
		seconds := int32(min(t.keep/time.Second, 1<<31-1)) //nolint:gosec // bounded
		t.TTLSeconds = &seconds
	}
	return nil
}
