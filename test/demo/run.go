package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	runner    = "demo"
	agentName = "demo"
	namespace = "pipeops-demo"
	app       = "web"
	greeting  = "a secret that only the cluster knows"
	// closeTimeout bounds the clean-up, which must not hang on broken parts.
	closeTimeout = 2 * time.Minute
)

// errInterrupted needs no logs: the user interrupted the demo.
var errInterrupted = errors.New("interrupted before the end; everything is taken down again")

// demo is one performance: the running system and what was shown of it.
type demo struct {
	*script
	sys   *harness.System
	watch *harness.Stream
	image string
	token string
}

func run(ctx context.Context, keep bool) (err error) {
	theirs, err := theirCluster()
	if err != nil {
		return err
	}
	s := &script{out: os.Stdout}
	sys, err := harness.New(harness.Options{Name: cmp.Or(os.Getenv("DEMO_NAME"), "demo"), Out: os.Stdout, Theirs: theirs})
	if err != nil {
		return err
	}
	d := &demo{script: s, sys: sys}
	defer func() { err = errors.Join(err, d.close()) }()
	start := time.Now()
	err = d.perform(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	s.summary()
	s.say("\ntook %s", round(time.Since(start)))
	if err != nil {
		return errors.Join(err, d.saveLogs())
	}
	if keep {
		d.lookAround(ctx)
	}
	return nil
}

// theirCluster returns the cluster in KUBECONFIG, or nil.
func theirCluster() (*harness.Theirs, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, nil
	}
	t := &harness.Theirs{Kubeconfig: path, Registry: os.Getenv("DEMO_REGISTRY"), Namespace: namespace, Host: os.Getenv("DEMO_HOST")}
	return t, t.Check()
}

func (d *demo) perform(ctx context.Context) error {
	for _, act := range d.acts() {
		if err := d.step(act.title, func() (string, error) { return act.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// act is one step of the demo. It returns what was seen.
type act struct {
	title string
	do    func(context.Context) (string, error)
}

func (d *demo) acts() []act {
	return []act{
		{"Build the three programs", d.build},
		{"A real Kubernetes", d.kubernetes},
		{"A real RabbitMQ", d.broker},
		{"The control plane, frps inside it", d.controlPlane},
		{"The agent, a pod in the cluster", d.agent},
		{"The Runner hears of it over RabbitMQ", d.announced},
		{"Runner: a secret, and an app that reads it", d.deploy},
		{"Runner: scale from 1 to 3", d.scale},
		{"The app answers", d.answer},
		{"Runner: a deploy that cannot work", d.badDeploy},
		{"The control plane's timeline of it all", d.timeline},
	}
}

func (d *demo) build(ctx context.Context) (string, error) {
	var err error
	if d.sys.Binaries, err = harness.Build(ctx); err != nil {
		return "", err
	}
	return "pipeops-agent, pipeops-controlplane, pipeops-runner in bin/", d.sys.Binaries.Link(filepath.Join(harness.Root(), "bin"))
}

func (d *demo) kubernetes(ctx context.Context) (string, error) {
	if err := d.sys.StartKubernetes(ctx); err != nil {
		return "", err
	}
	v, err := d.sys.Kube.Clientset.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Kubernetes %s at %s", v.GitVersion, d.sys.Kube.Config.Host), nil
}

func (d *demo) broker(ctx context.Context) (string, error) {
	if err := d.sys.StartBroker(ctx); err != nil {
		return "", err
	}
	return "AMQP over TLS, its page at " + d.sys.Broker.ManagementURL(), nil
}

func (d *demo) controlPlane(ctx context.Context) (string, error) {
	if err := d.sys.StartControlPlane(ctx); err != nil {
		return "", err
	}
	if _, err := d.sys.CreateRunner(ctx, runner); err != nil {
		return "", err
	}
	var err error
	if d.watch, err = d.sys.WatchAgents(runner); err != nil {
		return "", err
	}
	if d.token, err = d.sys.CreateToken(ctx); err != nil {
		return "", err
	}
	return "HTTPS API at " + d.sys.APIURL() + "; an enrolment token and a Runner's credentials made", nil
}

func (d *demo) agent(ctx context.Context) (string, error) {
	if err := d.sys.DeployAgent(ctx, agentName, d.token); err != nil {
		return "", err
	}
	memory, err := d.sys.AgentMemory(ctx)
	seen := "registered over HTTPS, tunnel up, ready"
	if memory > 0 { // not visible from here in a cluster that runs elsewhere
		seen += fmt.Sprintf("; %d MiB resident", memory>>20)
	}
	return seen, err
}

func (d *demo) announced(ctx context.Context) (string, error) {
	line, err := d.watch.Await(ctx, func(line string) bool {
		return strings.Contains(line, agentName) && strings.Contains(line, "online")
	})
	return "pipeops-runner agents --watch: " + line, err
}

func (d *demo) deploy(ctx context.Context) (string, error) {
	var err error
	if d.image, err = d.sys.LoadApp(ctx, "hello"); err != nil {
		return "", err
	}
	if _, err := d.runner(ctx, "namespace", "create", agentName, namespace); err != nil {
		return "", err
	}
	if _, err := d.runner(ctx, "secret", "set", agentName, "greeting", "-n", namespace, "--from-literal", "GREETING="+greeting); err != nil {
		return "", err
	}
	if _, err := d.runner(ctx, "deploy", agentName, app, "-n", namespace, "--image", d.image,
		"--port", "8080", "--env-from", "greeting", "--probe-path", "/healthz", "--wait=2m"); err != nil {
		return "", err
	}
	return d.status(ctx)
}

func (d *demo) scale(ctx context.Context) (string, error) {
	if _, err := d.runner(ctx, "scale", agentName, app, "-n", namespace, "--replicas", "3", "--wait=2m"); err != nil {
		return "", err
	}
	return d.status(ctx)
}

func (d *demo) answer(ctx context.Context) (string, error) {
	answer, err := d.sys.Kube.ServiceGet(ctx, namespace, app, 8080, "/")
	if err == nil && !strings.Contains(answer, greeting) {
		err = fmt.Errorf("the answer does not hold the secret's value: %q", answer)
	}
	return strings.TrimSpace(answer), err
}

// badDeploy expects failure: the exit code for it, the cause and the fix.
func (d *demo) badDeploy(ctx context.Context) (string, error) {
	start := time.Now()
	typo := d.image[:strings.LastIndex(d.image, ":")] + ":no-such-tag"
	out, err := d.runner(ctx, "deploy", agentName, "typo", "-n", namespace, "--image", typo, "--wait=1m")
	var failed *harness.ExitError
	if !errors.As(err, &failed) {
		return "", fmt.Errorf("an image that does not exist was deployed: %w\n%s", err, out)
	}
	said := failed.Stderr
	if !strings.Contains(said, "Image") || !strings.Contains(said, "fix") {
		return "", fmt.Errorf("the failure does not say what is wrong and how to fix it:\n%s", said)
	}
	_, err = d.runner(ctx, "delete", agentName, "typo", "-n", namespace)
	return fmt.Sprintf("exit code %d after %s: %s", failed.Code, round(time.Since(start)), strings.TrimSpace(said)), err
}

func (d *demo) timeline(ctx context.Context) (string, error) {
	out, err := d.sys.AwaitTimeline(ctx, agentName, "app.healthy", "app.failed")
	return fmt.Sprintf("pipeops-controlplane agents show %s: %d lines, app.healthy and app.failed among them", agentName, strings.Count(out, "\n")), err
}

// status returns the App as pipeops-runner shows it, on one line.
func (d *demo) status(ctx context.Context) (string, error) {
	out, err := d.runner(ctx, "apps", agentName, "-n", namespace)
	_, line, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return strings.Join(strings.Fields(line), " "), err
}

// runner runs pipeops-runner and shows the command.
func (d *demo) runner(ctx context.Context, args ...string) (string, error) {
	d.say("   $ pipeops-runner %s", strings.Join(shown(args), " "))
	return d.sys.Runner(ctx, runner, args...)
}

// shown adds quotes where a shell needs them.
func shown(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, " '\"$") {
			out[i] = "'" + a + "'"
		}
	}
	return out
}
