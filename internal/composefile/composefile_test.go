package composefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/composefile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestRead(t *testing.T) {
	text, err := os.ReadFile("testdata/shop.yaml")
	require.NoError(t, err)
	require.True(t, composefile.Is(text))
	apps, err := composefile.Read(t.Context(), "testdata/shop.yaml", text, []string{"TAG=1.4.2"})
	require.NoError(t, err)
	require.Len(t, apps, 3)
	db, queue, web := apps[0], apps[1], apps[2]

	assert.Equal(t, "db", db.Name)
	assert.Equal(t, runnerapi.AppSpec{
		Type: runnerapi.TypeStatefulSet, Image: "postgres:17", Ports: []runnerapi.Port{{Port: 5432}},
		Env:     []runnerapi.EnvVar{{Name: "PGDATA", Value: "/data/pg"}, {Name: "POSTGRES_PASSWORD", Value: "s3cret"}},
		Volumes: []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi"}}},
	}, db.Spec)
	assert.False(t, db.Published)
	require.Len(t, db.Notes, 3)
	assert.Contains(t, db.Notes[0], "ignored: shm_size")
	assert.Contains(t, db.Notes[1], "plain text: POSTGRES_PASSWORD")
	assert.NotContains(t, db.Notes[1], "s3cret")
	assert.Contains(t, db.Notes[2], "volume data has 1Gi")

	assert.Equal(t, "mail-queue", queue.Name)
	require.Len(t, queue.Notes, 2)
	assert.Contains(t, queue.Notes[1], "no port")

	assert.Equal(t, runnerapi.AppSpec{
		Image: "registry.example.com/shop/web:1.4.2", Args: []string{"serve", "--price", "5$$"}, Replicas: new(int32(2)),
		Ports: []runnerapi.Port{{Name: "p80", Port: 80}, {Name: "p9000udp", Port: 9000, Protocol: "UDP"}},
		Env:   []runnerapi.EnvVar{{Name: "DATABASE", Value: "postgres://db:5432/shop"}, {Name: "GREETING", Value: "$$(NAME)"}},
		Probes: runnerapi.Probes{Readiness: &runnerapi.Probe{
			Exec: []string{"/bin/sh", "-c", "wget -qO- localhost:80 || exit $?"}, PeriodSeconds: 5, TimeoutSeconds: 2, FailureThreshold: 5,
		}},
		Resources: runnerapi.Resources{
			Requests: runnerapi.ResourceAmounts{Memory: "64Mi"}, Limits: runnerapi.ResourceAmounts{CPU: "500m", Memory: "256Mi"},
		},
		Security:     &runnerapi.Security{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000))},
		GraceSeconds: new(int64(45)),
		Volumes:      []runnerapi.Volume{{Name: "volume-0", MountPath: "/tmp", EmptyDir: &runnerapi.EmptyDir{Memory: true}}},
	}, web.Spec)
	assert.True(t, web.Published)
	assert.Contains(t, web.Notes[0], "left out: UNSET")
	for _, app := range apps {
		assert.Empty(t, app.Spec.Validate(), app.Name)
	}
}

// TestRead_NamesWhatIsMissing: an App that would be less than its service is not made.
func TestRead_NamesWhatIsMissing(t *testing.T) {
	for text, says := range map[string]string{
		"{build: .}":                                       "services.a.image: is missing, and the service is built from",
		"{image: a, privileged: true}":                     "services.a.privileged: an App cannot be privileged",
		"{image: a, network_mode: host}":                   "services.a.network_mode: an App has nothing like it",
		"{image: a, working_dir: /x}":                      "services.a.working_dir: an App has nothing like it",
		"{image: a, volumes: ['./conf:/etc/conf']}":        "services.a.volumes[0]: ",
		"{image: a, volumes: ['there:/d']}":                "services.a.volumes[0]: there is an external volume",
		"{image: a, user: www}":                            "services.a.user: \"www\" is a name",
		"{image: a, ports: ['8000-8001:8000-8001'], x: 1}": "services.a.x is not a field of a Compose file",
		"{image: a, gpus: all}":                            "services.a.gpus: name a count",
		"{image: a, deploy: {resources: {reservations: {devices: [{capabilities: [gpu], device_ids: ['0']}]}}}}": "services.a.deploy.resources.reservations.devices: name a count",
		"{image: a, deploy: {resources: {reservations: {devices: [{capabilities: [tpu], count: 1}]}}}}":          "services.a.deploy.resources.reservations.devices: only NVIDIA's",
	} {
		_, err := composefile.Read(t.Context(), filepath.Join(t.TempDir(), "compose.yaml"), []byte("services: {a: "+text+"}\nvolumes: {there: {external: true}}\n"), nil)
		assert.ErrorContains(t, err, says, text)
	}
	two := "services: {a: {image: a, volumes: ['data:/d']}, b: {image: b, volumes: ['data:/d']}}\nvolumes: {data: {}}\n"
	_, err := composefile.Read(t.Context(), "compose.yaml", []byte(two), nil)
	assert.ErrorContains(t, err, "data is shared by a, b")
	_, err = composefile.Read(t.Context(), "compose.yaml", []byte("services: {a_b: {image: a}, a-b: {image: b}}"), nil)
	assert.ErrorContains(t, err, "would be the App a-b, which service a-b is, too")
	_, err = composefile.Read(t.Context(), "compose.yaml", []byte(
		"services: {web: {image: a, depends_on: {migrate: {condition: service_completed_successfully}}}, migrate: {image: a, restart: 'no'}}"), nil)
	assert.ErrorContains(t, err, "services.migrate.restart: the service runs once before others")
}

func TestRead_GPUs(t *testing.T) {
	apps, err := composefile.Read(t.Context(), "compose.yaml", []byte(
		"services: {a: {image: a, gpus: [{count: 1}]}, b: {image: b, deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}}}"), nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]int32{"nvidia.com/gpu": 1}, apps[0].Spec.Resources.Devices)
	assert.Equal(t, map[string]int32{"nvidia.com/gpu": 2}, apps[1].Spec.Resources.Devices)
}

// TestRead_Published: what a host keeps to itself does not become public.
func TestRead_Published(t *testing.T) {
	apps, err := composefile.Read(t.Context(), "compose.yaml", []byte(
		"services: {a: {image: a, ports: ['127.0.0.1:9200:9200']}, b: {image: b, ports: ['[::1]:1:1', '8080:80', '53:53/udp']}, c: {image: c, ports: ['80']}}"), nil)
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true, false}, []bool{apps[0].Published, apps[1].Published, apps[2].Published})
	assert.Contains(t, apps[0].Notes[0], "port 9200 is published to this machine alone")
	assert.Equal(t, int32(80), apps[1].Spec.Ports[0].Port, "the public one comes first")
}

func TestRead_Placement(t *testing.T) {
	apps, err := composefile.Read(t.Context(), "compose.yaml", []byte(
		"services: {a: {image: a, deploy: {placement: {constraints: ['node.labels.disk==ssd', 'node.role == manager']}}}, b: {image: b, deploy: {placement: {constraints: ['node.labels.example.com/zone == a']}}}}"), nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"disk": "ssd"}, apps[0].Spec.NodeSelector)
	assert.Contains(t, strings.Join(apps[0].Notes, "\n"), "ignored: deploy.mode")
	assert.Equal(t, map[string]string{"example.com/zone": "a"}, apps[1].Spec.NodeSelector)
	assert.NotContains(t, strings.Join(apps[1].Notes, "\n"), "deploy.mode")
}

func TestRead_Profiles(t *testing.T) {
	text := []byte("services: {a: {image: a}, debug: {image: b, profiles: [debug]}}")
	apps, err := composefile.Read(t.Context(), "compose.yaml", text, nil)
	require.NoError(t, err)
	require.Len(t, apps, 1)
	assert.Contains(t, apps[0].Notes[0], "services debug")
	apps, err = composefile.Read(t.Context(), "compose.yaml", text, []string{"COMPOSE_PROFILES=debug"})
	require.NoError(t, err)
	assert.Len(t, apps, 2)
}

func TestRead_EnvBesideFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("TAG=2\nNAME=beside\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.env"), []byte("A=${NAME}\n"), 0o600))
	apps, err := composefile.Read(t.Context(), filepath.Join(dir, "compose.yaml"), []byte("services: {a: {image: 'a:${TAG}', env_file: [a.env]}}"), []string{"TAG=3"})
	require.NoError(t, err)
	assert.Equal(t, "a:3", apps[0].Spec.Image)
	assert.Equal(t, []runnerapi.EnvVar{{Name: "A", Value: "beside"}}, apps[0].Spec.Env)
}

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{
		"services: {a: {image: b}}": true, "image: a": false, "apiVersion: pipeops.io/v1alpha1\nkind: App\nspec: {image: a}": false, "a: [": false, "": false,
	} {
		assert.Equal(t, want, composefile.Is([]byte(text)), text)
	}
}

// FuzzRead: no file makes the reader panic, and an App that it makes has a name.
func FuzzRead(f *testing.F) {
	text, err := os.ReadFile("testdata/shop.yaml")
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("services: {a: {image: b, volumes: [a:/b], ports: ['1:2']}}"))
	path := filepath.Join(f.TempDir(), "compose.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		apps, err := composefile.Read(t.Context(), path, text, nil)
		for _, app := range apps {
			if err == nil && app.Name == "" {
				t.Fatalf("an App without a name: %+v", app)
			}
		}
	})
}
