package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
)

// componentsPlace is the cluster, and where its charts come from.
type componentsPlace struct {
	kubeconfig, file, mirror, directory string
}

func (p *componentsPlace) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster, instead of $KUBECONFIG")
}

func (p *componentsPlace) addCharts(cmd *cobra.Command) {
	p.addCluster(cmd)
	cmd.Flags().StringVarP(&p.file, "filename", "f", "", "YAML file of settings: modes, values, mirror")
	cmd.Flags().StringVar(&p.mirror, "mirror", "", "chart repository that has all charts, instead of upstream's")
	cmd.Flags().StringVar(&p.directory, "charts", "", "directory of chart archives, without any download")
}

func (p *componentsPlace) installer(errOut io.Writer, settings components.Settings) (*components.Installer, error) {
	config, err := kubernetesConfig(p.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server does the fairness
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return &components.Installer{
		Config: config, Client: client,
		Charts: components.Source{
			Fetch:  repository.New(repository.Options{HTTPHosts: settings.HTTPHosts, Guard: egress.Guard{Hosts: egress.EveryHost}}),
			Mirror: settings.Mirror, Directory: p.directory,
		},
		Tell: func(s components.Step) { cli.Say(errOut, "%s %s", s.Action, s.Component) },
	}, nil
}

// settings reads the file of settings; without one nothing is set.
func (p *componentsPlace) settings() (components.Settings, error) {
	var s components.Settings
	if p.file != "" {
		data, err := os.ReadFile(p.file)
		if err != nil {
			return s, err
		}
		if s, err = components.ReadSettings(data); err != nil {
			return s, err
		}
	}
	if p.mirror != "" {
		s.Mirror = p.mirror
	}
	return s, nil
}

// componentsChoice is which components are wanted, where none is named.
type componentsChoice struct {
	set    string
	except []string
}

func (c *componentsChoice) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.set, "set", "", "set of components: none, minimal, default or full")
	cmd.Flags().StringSliceVar(&c.except, "except", nil, "components of the set to leave out, separated by commas")
}

// choose returns the settings with the components that the arguments or a set name. The mode that
// the file gives a component stays.
func (p *componentsPlace) choose(args []string, choice componentsChoice) (components.Settings, error) {
	set := choice.set
	s, err := p.settings()
	if err != nil {
		return s, err
	}
	if len(args) > 0 {
		set = strings.Join(args, ",")
	} else if set == "" && p.file != "" {
		set = string(components.SetNone)
	}
	names, err := components.Chosen(cmp.Or(set, string(components.SetDefault)))
	if err != nil {
		return s, err
	}
	if len(choice.except) > 0 && len(args) > 0 {
		return s, errors.New("--except: leaves out components of a set, and you have named components")
	}
	for _, name := range choice.except {
		if !components.Known(name) {
			return s, fmt.Errorf("--except: %q is not a component", name)
		}
	}
	s.Choose(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(choice.except, name) }), components.Auto)
	return s, nil
}

func newComponent() *cobra.Command {
	cmd := group("component", "Install what the cluster lacks: ingress, certificates, metrics, logs, dashboards",
		newComponentList(), newComponentPlan(), newComponentInstall(), newComponentUpgrade(), newComponentDelete())
	cmd.Long = "Install what the cluster lacks: ingress, certificates, metrics, logs, dashboards, costs.\n\n" +
		"The command works with your rights in the cluster, and the agent gains none. It leaves alone\n" +
		"what others have installed."
	return cmd
}

// look returns an installer, and what the cluster has.
func (p *componentsPlace) look(cmd *cobra.Command, settings components.Settings) (*components.Installer, components.Cluster, error) {
	i, err := p.installer(cmd.ErrOrStderr(), settings)
	if err != nil {
		return nil, components.Cluster{}, err
	}
	cluster, err := components.Look(cmd.Context(), i.Client)
	return i, cluster, err
}

func (p *componentsPlace) plan(cmd *cobra.Command, args []string, choice componentsChoice) (*components.Installer, components.Plan, error) {
	settings, err := p.choose(args, choice)
	if err != nil {
		return nil, components.Plan{}, wrong(err)
	}
	i, cluster, err := p.look(cmd, settings)
	if err != nil {
		return nil, components.Plan{}, err
	}
	plan, err := components.NewPlan(cluster, settings)
	return i, plan, err
}
