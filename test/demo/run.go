package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	// gatewayDomain is below which Apps are public. No DNS is needed: the demo's visitor knows
	// where the gateway is.
	gatewayDomain = "apps.example.com"
	// directHost is a host of an Ingress, which the operator grants in place of a DNS record.
	directHost = "shop.example.org"
	greeting   = "a secret that only the cluster knows"
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
	sys, err := harness.New(harness.Options{Name: cmp.Or(os.Getenv("DEMO_NAME"), "demo"), Out: os.Stdout, Theirs: theirs, GatewayDomain: gatewayDomain})
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
	acts := d.story()
	if os.Getenv(pictureFile) != "" {
		acts = append(acts, act{"The picture of it", d.picture})
	}
	return acts
}

func (d *demo) story() []act {
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
		{"The public reaches it over HTTPS", d.public},
		{"Directly, at the cluster's load balancer", d.direct},
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
	if node := d.sys.Cluster; node != nil { // whose private address counts as a load balancer's
		allowed := node.NodeIP() + "/32"
		d.sys.ControlPlaneArgs = append(d.sys.ControlPlaneArgs, "--gateway-direct-allow", allowed)
		d.sys.AgentSettings = map[string]string{"PIPEOPS_DIRECT_ADDRESSES": allowed}
	}
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
		"--port", "8080", "--env-from", "greeting", "--probe-path", "/healthz", "--public", "--wait=2m"); err != nil {
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

// public asks the gateway as a browser would. The App's host has a certificate of the gateway's own
// CA.
func (d *demo) public(ctx context.Context) (string, error) {
	visitor, err := d.sys.Visitor(ctx)
	if err != nil {
		return "", err
	}
	url, err := d.runner(ctx, "status", agentName, app, "-n", namespace, "-o", "jsonpath={.status.publicUrls[0]}")
	if err != nil {
		return "", err
	}
	url = strings.TrimSpace(url)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	answer := ""
	if err := harness.Eventually(ctx, url+" answers", func(ctx context.Context) (err error) {
		answer, err = get(ctx, visitor, url)
		return err
	}); err != nil {
		return "", err
	}
	out, err := d.runner(ctx, "routes", agentName)
	if err == nil && !strings.Contains(out, "serving") {
		err = fmt.Errorf("the route is not said to be serving:\n%s", out)
	}
	return url + ": " + strings.TrimSpace(answer), err
}

// direct has an ingress controller with a load balancer's address lead to the App, and stops it
// again: the gateway falls back to the tunnel.
func (d *demo) direct(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := d.sys.StartBalancer(ctx, harness.Balancer{Host: directHost, Namespace: namespace, Service: app, Port: 8080})
	if errors.Is(err, harness.ErrTheirs) {
		return "not shown in a cluster of yours, where it would take port 443 of a node", nil
	}
	if err != nil {
		return "", err
	}
	if _, err := d.sys.ControlPlane(ctx, "gateway", "grant", "create", directHost, agentName); err != nil {
		return "", err
	}
	visitor, err := d.sys.Visitor(ctx)
	if err != nil {
		return "", err
	}
	first, err := d.mode(ctx, visitor, "direct")
	if err != nil {
		return "", err
	}
	if err := d.sys.StopBalancer(ctx); err != nil {
		return "", err
	}
	stopped := time.Now()
	second, err := d.mode(ctx, visitor, "tunnel")
	return fmt.Sprintf("%s; the load balancer stops, and %s after it: %s", first, round(time.Since(stopped)), second), err
}

// mode waits until the gateway says that the host is reached in a mode, and returns what visitors
// get then.
func (d *demo) mode(ctx context.Context, visitor *http.Client, mode string) (string, error) {
	url, answer := "https://"+directHost+"/", ""
	err := harness.Eventually(ctx, url+" is in mode "+mode, func(ctx context.Context) (err error) {
		if answer, err = get(ctx, visitor, url); err != nil {
			return err
		}
		out, err := d.sys.ControlPlane(ctx, "routes", agentName, "-o", "json")
		if err != nil {
			return err
		}
		var listed struct {
			Items []struct{ Host, Mode, ModeReason string }
		}
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			return err
		}
		for _, r := range listed.Items {
			if r.Host == directHost && r.Mode == mode {
				return nil
			}
		}
		return fmt.Errorf("the routes are:\n%s", out)
	})
	return url + ", " + mode + ": " + strings.TrimSpace(answer), err
}

// get returns the answer of a URL, if it is the App's.
func get(ctx context.Context, visitor *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := visitor.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), greeting)) {
		err = fmt.Errorf("it answered %s: %q", resp.Status, text)
	}
	return string(text), err
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
	return fmt.Sprintf("pipeops-controlplane agent get %s: %d lines, app.healthy and app.failed among them", agentName, strings.Count(out, "\n")), err
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
