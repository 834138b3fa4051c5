package provider

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// fleet is a control plane with an agent, and the provider as a Runner.
type fleet struct {
	*core
	plane *planetest.Plane
	agent string // its ID
	file  string // the Runner's credentials
}

const clusterName = "shop"

// runAgent runs an agent in this process, in a real API server.
func runAgent(t *testing.T, p *planetest.Plane, cluster *kubetest.Env, labels map[string]string) (id string) {
	t.Helper()
	a, err := agent.New(agent.Options{
		Config: config.Config{
			ControlPlaneURL: p.URL(), Token: p.Token(t, administration.TokenOptions{TTL: time.Hour, Labels: labels}), ClusterName: clusterName, StateDir: t.TempDir(),
			Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
		},
		Version: "test", Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel), Now: p.Clock.Now, Kubernetes: cluster.Agent,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		await.Receive(t, done, "the end of the agent")
	})
	return p.AwaitOnline(t, time.Time{})
}

func runner(t *testing.T, p *planetest.Plane) (file string) {
	t.Helper()
	creds, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "terraform", TTL: time.Hour})
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "runner.json")
	require.NoError(t, creds.Write(file))
	return file
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	cluster := kubetest.ControlPlane(t) // skips short tests
	p := planetest.Start(t)
	id, file := runAgent(t, p, cluster, map[string]string{"env": "prod"}), runner(t, p)
	return &fleet{newCore(t, object{"runner_credentials_file": file, "operator_credentials_file": operator(t, p, administration.RoleOperator), "agent": clusterName}), p, id, file}
}

// as calls the Runner API as another party does.
func (f *fleet) as(do func(ctx context.Context, c *client.Client) error) {
	f.t.Helper()
	f.t.Setenv(envRunner, f.file)
	require.NoError(f.t, newClients("test", settings{}).on(f.t.Context(), clusterName, do))
}

func (f *fleet) app(name string) (app runnerapi.App) {
	f.t.Helper()
	f.as(func(ctx context.Context, c *client.Client) (err error) {
		app, err = c.Apps().Get(ctx, runnerapi.Key{Namespace: defaultNamespace, Name: name})
		return err
	})
	return app
}

const appKind = "pipeops_app"

// TestApp_Life plans, deploys, changes, imports and deletes an App in a real agent.
func TestApp_Life(t *testing.T) {
	f := startFleet(t)
	config := object{"name": "web", "spec": "image: registry.example.com/web:1\nports: [{port: 8080}]\n", "wait": false}
	made := f.put(appKind, nil, config)
	assert.Equal(t, clusterName+"/production/web", text(t, made.value, "id"))
	assert.Equal(t, clusterName, text(t, made.value, "agent"))
	assert.EqualValues(t, 8080, f.app("web").Spec.Ports[0].Port)
	var deployed runnerapi.AppSpec
	require.NoError(t, json.Unmarshal([]byte(text(t, made.value, "deployed_spec")), &deployed))
	assert.Equal(t, f.app("web").Spec, deployed)

	// What is in the cluster already is not taken over.
	_, wrong := f.plan(appKind, nil, config)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "there is an App production/web already")
	assert.Contains(t, wrong[0], "terraform import ADDRESS shop/production/web")

	// The agent refuses in the plan, with its code and fix.
	refused, wrong := f.plan(appKind, made, object{"name": "web", "spec": "image: registry.example.com/web:1\ntype: StatefulSet\n", "wait": false})
	require.NotNil(t, refused)
	require.Len(t, wrong, 1)
	for _, says := range []string{"The agent would refuse the App", "fix: ", "code: PO-", "request "} {
		assert.Contains(t, wrong[0], says)
	}
	_, wrong = f.plan(appKind, nil, object{"name": "web", "namespace": "kube-system", "spec": "image: a\n"})
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], `AttributeName("namespace")`)
	assert.Contains(t, wrong[0], "namespace_not_managed")

	// Image and replicas come before those of the spec.
	config["image"], config["replicas"] = "registry.example.com/web:2", 3
	made = f.put(appKind, made, config)
	assert.Equal(t, "registry.example.com/web:2", f.app("web").Spec.Image)
	assert.EqualValues(t, 3, *f.app("web").Spec.Replicas)
	config["wait"], config["timeouts"] = nil, object{"update": "1m"}
	generation := f.app("web").Generation
	made = f.put(appKind, made, config)
	assert.Equal(t, generation, f.app("web").Generation, "how the provider waits does not change the App")

	known := f.imported(appKind, "production/web")
	assert.Equal(t, "shop/production/web", text(t, known.value, "id"))
	assert.Contains(t, text(t, known.value, "spec"), "image: registry.example.com/web:2")
	assert.Equal(t, text(t, known.value, "id"), text(t, f.imported(appKind, "shop/production/web").value, "id"))

	found, wrong := f.data("pipeops_app", object{"name": "web"})
	require.Empty(t, wrong)
	assert.Equal(t, "registry.example.com/web:2", text(t, found, "image"))
	require.Empty(t, f.destroy(made))
	assert.Nil(t, f.refresh(made), "it is not in the state any more")
	_, wrong = f.data("pipeops_app", object{"name": "web"})
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "not_found")
}

// TestApp_Drift: changes by others are in the plan, where the resource names what they changed.
func TestApp_Drift(t *testing.T) {
	f := startFleet(t)
	config := object{"name": "drifts", "spec": "image: registry.example.com/web:1\nports: [{port: 8080}]\n", "wait": false}
	made := f.put(appKind, nil, config)
	key := runnerapi.Key{Namespace: defaultNamespace, Name: "drifts"}
	f.as(func(ctx context.Context, c *client.Client) error {
		_, err := c.Apps().Scale(ctx, key, runnerapi.Scale{Replicas: new(int32(4))}, runnerapi.WriteOptions{})
		return err
	})
	now := f.refresh(made)
	same, wrong := f.plan(appKind, now, config)
	require.Empty(t, wrong)
	assert.False(t, same.changes(), "replicas are not the resource's")

	change := func(spec runnerapi.AppSpec) {
		f.as(func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().Deploy(ctx, key, spec, runnerapi.WriteOptions{})
			return err
		})
	}
	planned, wrong := f.plan(appKind, now, object{"name": "drifts", "spec": "image: registry.example.com/web:3\n", "wait": false})
	require.Empty(t, wrong)
	foreign := f.app("drifts").Spec
	foreign.Image, foreign.Args = "registry.example.com/web:2", []string{"-debug"}
	change(foreign)
	_, wrong = f.apply(planned)
	require.Len(t, wrong, 1, "the plan was made before that change")
	assert.Contains(t, wrong[0], "changed_meanwhile")
	assert.Equal(t, "registry.example.com/web:2", f.app("drifts").Spec.Image)

	now = f.refresh(now)
	assert.Contains(t, text(t, now.value, "spec"), "- -debug")
	back, wrong := f.plan(appKind, now, config)
	require.Empty(t, wrong)
	assert.True(t, back.changes())
	now, wrong = f.apply(back)
	require.Empty(t, wrong)
	assert.Empty(t, f.app("drifts").Spec.Args)
	assert.EqualValues(t, 4, *f.app("drifts").Spec.Replicas, "still not the resource's")

	// With image and replicas of the resource, the spec keeps its form.
	config["image"], config["replicas"] = "registry.example.com/web:5", 2
	now = f.put(appKind, now, config)
	foreign = f.app("drifts").Spec
	foreign.Image, foreign.Replicas = "registry.example.com/web:6", new(int32(1))
	change(foreign)
	now = f.refresh(now)
	assert.Equal(t, config["spec"], text(t, now.value, "spec"))
	assert.Equal(t, "registry.example.com/web:6", text(t, now.value, "image"))
	f.put(appKind, now, config)
	assert.EqualValues(t, 2, *f.app("drifts").Spec.Replicas)
}

// TestApp_Outcome: a rollout that fails has its cause in the error, and its App in the state.
func TestApp_Outcome(t *testing.T) {
	f := startFleet(t)
	config := object{"name": "waits", "spec": "image: registry.example.com/web:1\n", "timeouts": object{"create": "2s"}}
	p, wrong := f.plan(appKind, nil, config)
	require.Empty(t, wrong)
	made, wrong := f.apply(p)
	require.Len(t, wrong, 1, "no node runs pods here")
	assert.Contains(t, wrong[0], "The App is not healthy yet")
	assert.Contains(t, wrong[0], "fix: raise the timeout")
	require.NotNil(t, f.refresh(made))
	require.Empty(t, f.destroy(made))

	// An agent that is not there does not stop a plan, and takes no App out of the state.
	lost := fields(t, f.put(appKind, nil, object{"name": "lost", "spec": "image: a\n", "wait": false}).value)
	lost["agent"] = f.value(lost["agent"].Type(), "elsewhere")
	_, wrong = f.tryRefresh(&instance{kind: appKind, value: tftypes.NewValue(f.typeOf(appKind), lost)})
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "no agent has that name")
	for name, config := range map[string]object{
		"an unknown agent": {"agent": "elsewhere", "name": "web", "spec": "image: a\n"},
		"an unknown image": {"name": "web", "spec": "ports: [{port: 80}]\n", "image": unknown},
	} {
		_, wrong := f.plan(appKind, nil, config)
		for _, text := range wrong {
			assert.Contains(t, text, "WARNING", name)
		}
	}
}

func TestAgents(t *testing.T) {
	f := startFleet(t)
	for selector, want := range map[any]int{nil: 1, "env=prod": 1, "env=test": 0} {
		found, wrong := f.data("pipeops_agents", object{"selector": selector})
		require.Empty(t, wrong)
		list := fields(t, found)["agents"]
		assert.Len(t, elements(t, list), want, "%v", selector)
		if want > 0 {
			assert.Equal(t, f.agent, text(t, elements(t, list)[0], "id"))
			assert.Equal(t, "online", text(t, elements(t, list)[0], "state"))
		}
	}
	_, wrong := f.data("pipeops_agents", object{"selector": "env in ("})
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], `AttributeName("selector")`)
}

func TestHost(t *testing.T) {
	f := startFleet(t)
	const kind = "pipeops_host"
	made := f.put(kind, nil, object{"host": "www.example.com", "agent": clusterName})
	assert.Equal(t, f.agent, text(t, made.value, "agent_id"))
	assert.Equal(t, f.agent, text(t, f.imported(kind, "www.example.com").value, "agent"))
	_, wrong := f.plan(kind, made, object{"host": "www.example.com", "agent": "elsewhere"})
	require.Empty(t, wrong)
	other, _ := f.plan(kind, made, object{"host": "www.example.com", "agent": "elsewhere"})
	_, wrong = f.apply(other)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "not_found")
	require.NoError(t, f.plane.Gateway.Take(t.Context(), "www.example.com"))
	assert.Nil(t, f.refresh(made))
	require.Empty(t, f.destroy(made))
}

// TestApp_ValidatesConfig: mistakes are errors of their attributes before anything is asked.
func TestApp_ValidatesConfig(t *testing.T) {
	c := newCore(t, object{})
	for says, config := range map[string]object{
		`AttributeName("spec"): Invalid App: line 1: imag: unknown field`: {"name": "web", "spec": "imag: a\n"},
		`AttributeName("image"): Invalid App: There is no image`:          {"name": "web", "spec": "replicas: 1\n"},
		`AttributeName("name"): Invalid App: The spec is that of name`:    {"name": "web", "spec": "apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: api}\nspec: {image: a}\n"},
		`AttributeName("name"): Invalid App: path.name: "Web" cannot be`:  {"name": "Web", "spec": `{"image": "a"}`},
		`AttributeName("spec"): Invalid App: ports`:                       {"name": "web", "spec": "image: a\nports: [{port: 80}, {port: 81}]\n"},
	} {
		_, wrong := c.plan(appKind, nil, config)
		require.NotEmpty(t, wrong, says)
		assert.Contains(t, wrong[0], says)
	}
}
