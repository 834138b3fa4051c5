package command

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// appFlags are what a command brings that a policy can bound.
type appFlags struct {
	file     string
	image    string
	replicas int32
	cpu      string
	memory   string

	hosts, annotations []string
	public             bool
}

func (f *appFlags) add(fl *pflag.FlagSet) {
	fl.StringVarP(&f.file, "filename", "f", "", "file with the App to deploy, in the format of pipeops-runner deploy -f")
	fl.StringVar(&f.image, "image", "", "image of the App")
	fl.Int32Var(&f.replicas, "replicas", -1, "number of pods to deploy or scale to")
	fl.StringVar(&f.cpu, "limit-cpu", "", "CPU limit of the App's container")
	fl.StringVar(&f.memory, "limit-memory", "", "memory limit of the App's container")
	fl.StringSliceVar(&f.hosts, "host", nil, "host names of the App's Ingress")
	fl.BoolVar(&f.public, "public", false, "the App asks for a host below the gateway's domain")
	fl.StringSliceVar(&f.annotations, "annotation", nil, "keys of the annotations of the App's pods")
}

// bring puts into the intent what the flags name, where the command has it.
func (f *appFlags) bring(i *runnerapi.Intent) error {
	switch i.Command {
	case "put-app":
		spec, err := f.spec()
		i.App = spec
		return err
	case "scale-app":
		if f.replicas >= 0 {
			i.Scale = &runnerapi.Scale{Replicas: &f.replicas}
		}
	}
	return nil
}

// spec returns nil when no flag names anything of an App: then only the command itself is tried.
func (f *appFlags) spec() (*runnerapi.AppSpec, error) {
	if reflect.DeepEqual(*f, appFlags{replicas: -1}) {
		return nil, nil
	}
	spec, err := f.read()
	if err != nil {
		return nil, err
	}
	if f.image != "" {
		spec.Image = f.image
	}
	if f.replicas >= 0 {
		spec.Replicas = &f.replicas
	}
	if f.cpu != "" {
		spec.Resources.Limits.CPU = f.cpu
	}
	if f.memory != "" {
		spec.Resources.Limits.Memory = f.memory
	}
	if (f.public || len(f.hosts) > 0) && spec.Ingress == nil {
		spec.Ingress = &runnerapi.Ingress{}
	}
	if f.public {
		spec.Ingress.Public = true
	}
	for _, host := range f.hosts {
		spec.Ingress.Hosts = append(spec.Ingress.Hosts, runnerapi.IngressHost{Host: host})
	}
	for _, key := range f.annotations {
		if spec.PodAnnotations == nil {
			spec.PodAnnotations = map[string]string{}
		}
		spec.PodAnnotations[key] = ""
	}
	if spec.Image == "" {
		return nil, errors.New("--image: is not given (fix: name the App's image, by this or in --filename)")
	}
	return spec, nil
}

func (f *appFlags) read() (*runnerapi.AppSpec, error) {
	if f.file == "" {
		return &runnerapi.AppSpec{}, nil
	}
	text, err := boundedfile.Head(f.file, runnerapi.MaxAppBody+1)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	app, err := appfile.Read(text)
	if err != nil {
		return nil, fmt.Errorf("--filename: %s: %w", f.file, err)
	}
	return &app.Spec, nil
}
