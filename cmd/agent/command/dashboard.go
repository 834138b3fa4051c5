package command

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/web/dashboard"
)

// dashboardFlags are where the dashboard reads, and how it is opened.
type dashboardFlags struct {
	auditPlace
	port      int
	noBrowser bool
	service   bool
}

func newDashboard() *cobra.Command {
	f := &dashboardFlags{}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the agent, its Apps and what Runners did, in a browser",
		Long: "Serve pages about the agent, its Apps, the policy and the audit log on this machine alone, and\n" +
			"open them in a browser.\n\n" +
			"The pages read the cluster with the rights of your kubeconfig. They work while the agent, the\n" +
			"control plane or the internet is away. The printed link signs one browser in, once.",
		Args: cli.ExactArgs(),
		Example: `  pipeops-agent dashboard
  pipeops-agent dashboard --service
  pipeops-agent dashboard --port 8443 --no-browser
  kubectl pipeops dashboard`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.port, "port", 0, "port on 127.0.0.1 (default: a free one)")
	fl.BoolVar(&f.noBrowser, "no-browser", false, "print the link only")
	fl.BoolVar(&f.service, "service", false, "use the settings of the agent's service on this machine, from "+serviceDir)
	return cmd
}

func (f *dashboardFlags) run(cmd *cobra.Command) error {
	if f.service {
		if err := f.adopt(cmd); err != nil {
			return err
		}
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	d, err := dashboard.New(opts)
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)))
	if err != nil {
		return fmt.Errorf("%w (fix: choose another --port)", err)
	}
	return d.Serve(cmd.Context(), ln, func(link string) {
		cli.Say(cmd.OutOrStdout(), "Dashboard: %s\nThe link signs one browser in, once. Ctrl-C ends the dashboard.", link)
		if !f.noBrowser && !cli.OpenBrowser(cmd.Context(), link) {
			cli.Say(cmd.ErrOrStderr(), "No browser was found. Open the link yourself; from another machine: ssh -L PORT:127.0.0.1:PORT HOST")
		}
	})
}

// adopt takes over what the service has, where no flag says otherwise.
func (f *dashboardFlags) adopt(cmd *cobra.Command) error {
	if err := adoptService(); err != nil {
		return err
	}
	for name, to := range map[string]*string{"kubeconfig": &f.kubeconfig, "state-dir": &f.stateDir} {
		if !cmd.Flags().Changed(name) {
			*to = os.Getenv(map[string]string{"kubeconfig": "KUBECONFIG", "state-dir": "PIPEOPS_STATE_DIR"}[name])
		}
	}
	return nil
}

func (f *dashboardFlags) options() (dashboard.Options, error) {
	kubernetes, err := kubernetesConfig(f.kubeconfig)
	if err != nil {
		return dashboard.Options{}, err
	}
	kubernetes.QPS = -1 // the API server does the fairness
	records, err := f.store()
	if err != nil {
		return dashboard.Options{}, err
	}
	checks := &dashboardChecks{dashboardFlags: f, kubernetes: kubernetes}
	opts := dashboard.Options{
		Kubernetes: kubernetes, Namespace: f.namespace, Place: placeOf(f.kubeconfig, kubernetes.Host), Version: version,
		Log: newLogger(os.Stderr, "warn"), Now: time.Now,
		Audit: records, Doctor: checks.doctor, Bundle: checks.bundle, Components: checks.components, Updates: checks.updates,
	}
	if f.stateDir == "" { // files of another user than the agent's would break its log
		opts.Acts = records
	} else {
		opts.Readiness, opts.PolicyFile = checks.readiness, os.Getenv("PIPEOPS_POLICY_FILE")
	}
	return opts, nil
}

// placeOf names the cluster as the kubeconfig does, or by its address.
func placeOf(kubeconfig, host string) string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).RawConfig()
	if err != nil || raw.CurrentContext == "" || raw.CurrentContext == "default" {
		return host
	}
	return raw.CurrentContext
}
