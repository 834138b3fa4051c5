package apps

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SpecFlags are the flags that make up an App.
type SpecFlags struct {
	image      string
	replicas   OptionalInt
	ports      []string
	env        []string
	envFrom    []string
	envSecret  []string
	cpu        string
	memory     string
	devices    map[string]int
	metrics    string
	probePath  string
	probePort  int32
	pullSecret []string
	Args       []string
	workload   string
	schedule   string
	hosts      []string
	passed     []string
	tlsSecret  string
	public     bool
	publicTCP  []string
	publicUDP  []string
	allowFrom  []string
	basicAuth  string
	signIn     runnerapi.SignIn
	tokens     string
	asRoot     bool
	restartOn  []string
	sizing     string
	given      *pflag.FlagSet // all of these
}

func (f *SpecFlags) add(cmd *cobra.Command) {
	f.AddContainer(cmd)
	fl := f.given
	fl.Var(&f.replicas, "replicas", "number of pods (default: the App's current number, or 1 for a new App)")
	fl.StringArrayVarP(&f.ports, "port", "p", nil, "port that the container listens on, as [NAME=]PORT[:SERVICE-PORT][/udp]; may be repeated")
	fl.StringVar(&f.metrics, "metrics", "", "port at which each pod serves metrics for Prometheus, as PORT[/PATH] (default path: /metrics)")
	fl.StringVar(&f.probePath, "probe-path", "", "HTTP path that succeeds when a pod is ready")
	fl.Int32Var(&f.probePort, "probe-port", 0, "port of --probe-path (default: the first port)")
	fl.StringVar(&f.workload, "type", "", "workload: Deployment (the default), StatefulSet, DaemonSet, Job or CronJob")
	fl.StringVar(&f.schedule, "schedule", "", `schedule of a CronJob, in UTC, e.g. "15 3 * * *"`)
	fl.BoolVar(&f.public, "public", false, "serve the first port on the web, at a host below the domain of the control plane's gateway")
	fl.BoolVar(&f.asRoot, "run-as-root", false, "let the image run as root, with the capabilities that most such images expect (security.allowRoot and addCapabilities)")
	fl.StringArrayVar(&f.hosts, "host", nil, "host name of yours at which the gateway or the cluster's ingress serves the first port, as HOST[/PATH]; may be repeated")
	fl.StringArrayVar(&f.publicTCP, "public-tcp", nil, "port of the control plane's gateway that leads to a port of the App, for what is not HTTP, as PORT[:PUBLIC-PORT]; may be repeated")
	fl.StringArrayVar(&f.publicUDP, "public-udp", nil, "the same for a port of UDP, as PORT[:PUBLIC-PORT]; may be repeated")
	fl.StringArrayVar(&f.allowFrom, "allow-from", nil, "let in visitors from this address or network alone, as 203.0.113.0/24; may be repeated")
	fl.StringVar(&f.basicAuth, "basic-auth-secret", "", "let in visitors with a user and password alone; the Secret's key auth has a file that htpasswd wrote")
	fl.StringArrayVar(&f.signIn.Emails, "sign-in-email", nil, "let in visitors who sign in with this address, as anna@example.com or *@example.com; may be repeated")
	fl.StringArrayVar(&f.signIn.Groups, "sign-in-group", nil, "let in visitors who sign in and are in this group of the identity provider; may be repeated")
	fl.StringVar(&f.signIn.Secret, "sign-in-secret", "", "Secret of the identity provider, with the keys issuer, client-id and client-secret (the control plane's provider)")
	fl.StringVar(&f.tokens, "service-tokens-secret", "", "let in clients with a token of this Secret in the header Pipeops-Service-Token; each key is a client's name")
	fl.StringArrayVar(&f.passed, "passthrough-host", nil, "host name of yours whose connections reach the App with their TLS, as HOST[:PORT]: the gateway has no certificate of it; may be repeated")
	fl.StringVar(&f.tlsSecret, "tls-secret", "", "TLS secret with the certificate of each --host")
	fl.StringSliceVar(&f.restartOn, "restart-on", nil, "restart the App when these change: secrets, config-maps, or none")
	fl.StringVar(&f.sizing, "right-sizing", "", "fit the resource requests to the use: off, recommend or apply (bounds: in a file)")
	cmd.Flags().AddFlagSet(fl)
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions( // fails for an unknown flag only
		workloads, cobra.ShellCompDirectiveNoFileComp))
}

// workloads are the types of workload. Their names are accepted in any case.
var workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"}

// AddContainer adds the flags for what everything has that runs.
func (f *SpecFlags) AddContainer(cmd *cobra.Command) {
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.given = fl
	fl.StringVar(&f.image, "image", "", "container image")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, as NAME=VALUE; may be repeated")
	fl.StringArrayVar(&f.envFrom, "env-from", nil, "secret whose keys all become environment variables; may be repeated")
	fl.StringArrayVar(&f.envSecret, "env-secret", nil, "environment variable from a secret, as NAME=SECRET/KEY; may be repeated")
	fl.StringVar(&f.cpu, "cpu", "", "CPU of each pod, as REQUEST[:LIMIT], e.g. 250m:1")
	fl.StringVar(&f.memory, "memory", "", "memory of each pod, as REQUEST[:LIMIT], e.g. 128Mi:256Mi")
	fl.StringToIntVar(&f.devices, "device", nil, "extended resource of each pod, as `NAME=COUNT`, e.g. nvidia.com/gpu=1; may be repeated")
	fl.Lookup("device").DefValue = "" // help would show it
	fl.StringArrayVar(&f.pullSecret, "pull-secret", nil, "pull secret for the image; may be repeated")
	cmd.Flags().AddFlagSet(fl)
}

// checkGiven refuses flags whose value is empty, as from a variable that is not set: without
// --basic-auth-secret, for one, an App is open to everyone.
func (f *SpecFlags) checkGiven() (err error) {
	f.given.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Value.Type() == "string" && flag.Value.String() == "" {
			err = fmt.Errorf("--%s: the value is empty; give one, or leave the flag out", flag.Name)
		}
	})
	return err
}

// Apply puts what was given over the spec.
func (f *SpecFlags) Apply(spec *runnerapi.AppSpec) error {
	if err := f.checkGiven(); err != nil {
		return cli.Usage(err)
	}
	if f.image != "" {
		spec.Image = f.image
	}
	if f.workload != "" {
		spec.Type = runnerapi.AppType(f.workload)
		for _, known := range workloads {
			if strings.EqualFold(known, f.workload) {
				spec.Type = runnerapi.AppType(known)
			}
		}
	}
	if f.replicas.Given {
		spec.Replicas = &f.replicas.Value
	}
	if len(f.Args) > 0 {
		spec.Args = f.Args
	}
	f.applySchedule(spec)
	if f.asRoot {
		spec.SetAllowRoot(true)
	}
	spec.ImagePullSecrets = append(spec.ImagePullSecrets, f.pullSecret...)
	for _, name := range f.envFrom {
		spec.EnvFrom = append(spec.EnvFrom, runnerapi.EnvSource{Secret: name})
	}
	if len(f.ports) > 0 {
		spec.Ports = nil
	}
	steps := []func(*runnerapi.AppSpec) error{f.applyPorts, f.applyEnv, f.applyEnvSecret, f.applyResources, f.applyMetrics, f.applyProbe, f.applyHosts, f.applyRestartOn}
	for _, step := range steps {
		if err := step(spec); err != nil {
			return cli.Usage(err)
		}
	}
	return nil
}

func (f *SpecFlags) applyPorts(spec *runnerapi.AppSpec) error {
	for _, s := range f.ports {
		port, err := appform.ParsePort(s)
		if err != nil {
			return fmt.Errorf("--port %s: %w", s, err)
		}
		spec.Ports = append(spec.Ports, port)
	}
	return nil
}

func (f *SpecFlags) applyEnv(spec *runnerapi.AppSpec) error {
	for _, s := range f.env {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return fmt.Errorf("--env: expected NAME=VALUE, there is no = in the one for %q", name)
		}
		setEnv(spec, runnerapi.EnvVar{Name: name, Value: value})
	}
	return nil
}

func (f *SpecFlags) applyEnvSecret(spec *runnerapi.AppSpec) error {
	for _, s := range f.envSecret {
		name, of, _ := strings.Cut(s, "=")
		key, err := appform.ParseKey(of)
		if err != nil || name == "" {
			return fmt.Errorf("--env-secret %s: expected NAME=SECRET/KEY", s)
		}
		setEnv(spec, runnerapi.EnvVar{Name: name, Secret: key})
	}
	return nil
}

// setEnv replaces the variable of that name, or adds it.
func setEnv(spec *runnerapi.AppSpec, env runnerapi.EnvVar) {
	i := slices.IndexFunc(spec.Env, func(e runnerapi.EnvVar) bool { return e.Name == env.Name })
	if i < 0 {
		spec.Env = append(spec.Env, env)
		return
	}
	spec.Env[i] = env
}

func (f *SpecFlags) applyResources(spec *runnerapi.AppSpec) error {
	amount := func(s string, request, limit *string) {
		r, l, ok := strings.Cut(s, ":")
		if r != "" {
			*request = r
		}
		if ok {
			*limit = l
		}
	}
	amount(f.cpu, &spec.Resources.Requests.CPU, &spec.Resources.Limits.CPU)
	amount(f.memory, &spec.Resources.Requests.Memory, &spec.Resources.Limits.Memory)
	for name, n := range f.devices {
		if spec.Resources.Devices == nil {
			spec.Resources.Devices = map[string]int32{}
		}
		spec.Resources.Devices[name] = int32(min(max(n, 0), runnerapi.MaxDevices+1)) // what is out of bounds stays so
	}
	return nil
}

func (f *SpecFlags) applyMetrics(spec *runnerapi.AppSpec) error {
	if f.metrics == "" {
		return nil
	}
	number, path, ok := strings.Cut(f.metrics, "/")
	port, err := appform.ParsePortNumber(number)
	if err != nil {
		return fmt.Errorf("--metrics %s: %w", f.metrics, err)
	}
	spec.Metrics = &runnerapi.MetricsPort{Port: port}
	if ok {
		spec.Metrics.Path = "/" + path
	}
	return nil
}

func (f *SpecFlags) applyProbe(spec *runnerapi.AppSpec) error {
	if f.probePath == "" {
		return nil
	}
	port := f.probePort
	if port == 0 {
		if len(spec.Ports) == 0 {
			return fmt.Errorf("--probe-path %s: which port? Give --port or --probe-port", f.probePath)
		}
		port = spec.Ports[0].Port
	}
	spec.Probes.Readiness = appform.Probe(f.probePath, port)
	return nil
}

func (f *SpecFlags) applyHosts(spec *runnerapi.AppSpec) error {
	if len(f.hosts) == 0 && f.tlsSecret != "" {
		return errors.New("--tls-secret: of which host? Give --host")
	}
	guarded := len(f.allowFrom) > 0 || f.basicAuth != "" || f.tokens != "" || f.signsIn()
	if guarded && spec.Ingress == nil && f.places() == 0 && !f.public {
		return errors.New("--allow-from, --basic-auth-secret, --sign-in-email, --sign-in-group, --sign-in-secret and --service-tokens-secret: of what? Give --public, --host, --passthrough-host, --public-tcp or --public-udp")
	}
	if f.places() == 0 && !f.public && !guarded {
		return nil
	}
	ingress := runnerapi.Ingress{}
	if spec.Ingress != nil { // a file's class and annotations stay
		ingress = *spec.Ingress
	}
	ingress.Public = ingress.Public || f.public
	if err := f.applyHostNames(&ingress); err != nil {
		return err
	}
	if err := f.applyPublicPorts(&ingress); err != nil {
		return err
	}
	if guarded {
		ingress.Visitors = f.visitors(ingress.Visitors)
	}
	spec.Ingress = &ingress
	return nil
}

// places counts the hosts and ports at which flags publish the App.
func (f *SpecFlags) places() int {
	return len(f.hosts) + len(f.passed) + len(f.publicTCP) + len(f.publicUDP)
}

// applyHostNames replaces the hosts of a file with those of flags.
func (f *SpecFlags) applyHostNames(ingress *runnerapi.Ingress) error {
	if len(f.hosts)+len(f.passed) > 0 {
		ingress.Hosts = nil
	}
	for _, s := range f.hosts {
		host := appform.ParseHost(s)
		host.TLSSecret = f.tlsSecret
		ingress.Hosts = append(ingress.Hosts, host)
	}
	for _, s := range f.passed {
		name, port, named := strings.Cut(s, ":")
		host := runnerapi.IngressHost{Host: name, Passthrough: true}
		if named {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return fmt.Errorf("--passthrough-host %s: the port is not a number from 1 to 65535; give HOST or HOST:PORT", s)
			}
			host.Port = int32(n)
		}
		ingress.Hosts = append(ingress.Hosts, host)
	}
	return nil
}

// applyPublicPorts replaces the public ports of a file with those of flags.
func (f *SpecFlags) applyPublicPorts(ingress *runnerapi.Ingress) error {
	if len(f.publicTCP)+len(f.publicUDP) > 0 {
		ingress.Ports = nil
	}
	for _, of := range []struct {
		flag, protocol string
		values         []string
	}{{"--public-tcp", "", f.publicTCP}, {"--public-udp", "UDP", f.publicUDP}} {
		for _, s := range of.values {
			port, err := appform.ParsePublicPort(s)
			if err == nil && port.Protocol != "" {
				err = errors.New("the flag names the protocol; leave it out here")
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", of.flag, s, err)
			}
			port.Protocol = of.protocol
			ingress.Ports = append(ingress.Ports, port)
		}
	}
	return nil
}

// visitors returns those of a file with what the flags say.
func (f *SpecFlags) visitors(of *runnerapi.Visitors) *runnerapi.Visitors {
	out := runnerapi.Visitors{}
	if of != nil {
		out = *of
	}
	if len(f.allowFrom) > 0 {
		out.AllowFrom = f.allowFrom
	}
	out.BasicAuthSecret = cmp.Or(f.basicAuth, out.BasicAuthSecret)
	out.ServiceTokensSecret = cmp.Or(f.tokens, out.ServiceTokensSecret)
	if !f.signsIn() {
		return &out
	}
	signIn := runnerapi.SignIn{}
	if out.SignIn != nil {
		signIn = *out.SignIn
	}
	if len(f.signIn.Emails)+len(f.signIn.Groups) > 0 {
		signIn.Emails, signIn.Groups = f.signIn.Emails, f.signIn.Groups
	}
	signIn.Secret = cmp.Or(f.signIn.Secret, signIn.Secret)
	out.SignIn = &signIn
	return &out
}

// signsIn reports whether a flag says how visitors sign in.
func (f *SpecFlags) signsIn() bool {
	return len(f.signIn.Emails)+len(f.signIn.Groups) > 0 || f.signIn.Secret != ""
}

func (f *SpecFlags) applySchedule(spec *runnerapi.AppSpec) {
	if f.schedule == "" {
		return
	}
	schedule := runnerapi.Schedule{}
	if spec.Schedule != nil {
		schedule = *spec.Schedule
	}
	schedule.Cron = f.schedule
	spec.Schedule = &schedule
}

func (f *SpecFlags) applyRestartOn(spec *runnerapi.AppSpec) error {
	if f.sizing != "" {
		if spec.RightSizing == nil {
			spec.RightSizing = &runnerapi.RightSizing{}
		}
		spec.RightSizing.Mode = runnerapi.SizingMode(f.sizing)
	}
	if len(f.restartOn) == 0 {
		return nil
	}
	spec.RestartOn = nil
	for _, s := range f.restartOn {
		switch s {
		case "secrets":
			spec.RestartOn = append(spec.RestartOn, runnerapi.RestartOnSecrets)
		case "config-maps", "configMaps":
			spec.RestartOn = append(spec.RestartOn, runnerapi.RestartOnConfigMaps)
		case "none":
		default:
			return fmt.Errorf("--restart-on %s: expected secrets, config-maps or none", s)
		}
	}
	return nil
}

// OptionalInt is a number that may not have been given.
type OptionalInt struct {
	Value int32
	Given bool
}

// String makes OptionalInt a pflag.Value.
func (o *OptionalInt) String() string {
	if !o.Given {
		return ""
	}
	return strconv.Itoa(int(o.Value))
}

// Set sets the flag's value.
func (o *OptionalInt) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("is not a number of pods")
	}
	o.Value, o.Given = int32(n), true
	return nil
}

// Type returns the text for the help.
func (o *OptionalInt) Type() string { return "int" }
