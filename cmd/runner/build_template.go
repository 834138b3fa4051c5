package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

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
	f.StringVar(&t.Dockerfile, "dockerfile", "", "the Dockerfile, seen from "+context+" (default: Dockerfile)")
	f.StringVar(&t.Target, "target", "", "stage of the Dockerfile to stop at")
	f.StringArrayVar(&t.args, "arg", nil, "build argument NAME=VALUE, no secret; may be given several times")
	f.StringVar(&t.Image, "image", "", "REGISTRY/REPOSITORY[:TAG] to push to; without a tag it is the commit")
	f.StringVar(&t.PushCredentials, "push-credentials", "", "pull secret whose user may push")
	f.StringVar(&t.PullCredentials, "pull-credentials", "", "pull secret for base images")
	f.StringVar(&t.caMap, "ca-config-map", "", "config map with certificates of the registry's CA")
	f.StringVar(&t.caSecret, "ca-secret", "", "secret with them in its key ca.crt, instead")
	f.StringVar(&t.Resources.Requests.CPU, "cpu", "", "CPU that the build reserves, e.g. 500m")
	f.StringVar(&t.Resources.Requests.Memory, "memory", "", "memory that it reserves, e.g. 512Mi")
	f.StringVar(&t.Resources.Limits.CPU, "limit-cpu", "", "most CPU of the build")
	f.StringVar(&t.Resources.Limits.Memory, "limit-memory", "", "most memory of the build")
	f.DurationVar(&t.deadline, "deadline", 0, "give the build up after this long (default 1h)")
	f.DurationVar(&t.keep, "keep", 0, "how long a finished build is kept with its log (default 168h)")
	f.IntVar(&t.History, "history", 0, "how many builds are kept (default 5)")
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
