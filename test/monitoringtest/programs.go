package monitoringtest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Values are those of the component prometheus, seen from the repository's root.
const Values = "internal/components/values/prometheus.yaml"

// Jobs returns the scrape jobs of the component prometheus, by name, without what finds their
// targets in Kubernetes.
func Jobs(t *testing.T) map[string]map[string]any {
	t.Helper()
	var values struct{ ExtraScrapeConfigs string }
	readYAML(t, Values, &values)
	var list []map[string]any
	must(t, yaml.Unmarshal([]byte(values.ExtraScrapeConfigs), &list))
	all := map[string]map[string]any{}
	for _, job := range list {
		if job["kubernetes_sd_configs"] == nil {
			t.Fatalf("job %v finds no targets", job["job_name"])
		}
		delete(job, "kubernetes_sd_configs")
		all[job["job_name"].(string)] = job
	}
	return all
}

// StartAlertmanager starts an Alertmanager with the component's configuration, and returns
// its address. It sends alerts to the webhook, with the token in the file.
func StartAlertmanager(t *testing.T, webhook, tokenFile string) string {
	t.Helper()
	var values struct {
		Alertmanager struct{ Config map[string]any }
	}
	readYAML(t, Values, &values)
	config := values.Alertmanager.Config
	route := config["route"].(map[string]any)
	route["group_wait"], route["group_interval"] = "1s", "1s"
	hook := config["receivers"].([]any)[0].(map[string]any)["webhook_configs"].([]any)[0].(map[string]any)
	hook["url"] = webhook
	hook["http_config"].(map[string]any)["authorization"].(map[string]any)["credentials_file"] = tokenFile
	address := freeport.Address(t)
	runs(t, programs.Alertmanager, address, "--config.file="+written(t, config), "--storage.path="+t.TempDir(),
		"--cluster.listen-address=", "--web.listen-address="+address)
	return address
}

// Target is an address with the labels by which Kubernetes would describe it.
type Target struct {
	Address string
	Labels  map[string]string
}

// StartPrometheus starts a Prometheus with the component's jobs and rules, which do not wait before
// they fire, and returns its address. The targets are those of the jobs by their names.
func StartPrometheus(t *testing.T, alertmanager string, targets map[string]Target) string {
	t.Helper()
	var list []any
	for name, job := range Jobs(t) {
		if at, ok := targets[name]; ok {
			job["static_configs"] = []any{map[string]any{"targets": []string{at.Address}, "labels": at.Labels}}
		}
		list = append(list, job)
	}
	config := written(t, map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{written(t, RulesThatFireAtOnce(t))},
		"scrape_configs": list,
		"alerting":       map[string]any{"alertmanagers": []any{map[string]any{"static_configs": []any{map[string]any{"targets": []string{alertmanager}}}}}},
	})
	address := freeport.Address(t)
	runs(t, programs.Prometheus, address, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
	return address
}

// RulesThatFireAtOnce returns our alert rules but those about the control plane, which no
// Prometheus of a cluster has.
func RulesThatFireAtOnce(t *testing.T) any {
	t.Helper()
	var file struct {
		Groups []map[string]any `json:"groups"`
	}
	readYAML(t, "deployments/prometheus/rules.yaml", &file)
	file.Groups = slices.DeleteFunc(file.Groups, func(g map[string]any) bool { return g["name"] == "pipeops-controlplane" })
	for _, g := range file.Groups {
		for _, rule := range g["rules"].([]any) {
			delete(rule.(map[string]any), "for")
		}
	}
	return file
}

func readYAML(t *testing.T, name string, out any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(inputs.Root(), name))
	must(t, err)
	must(t, yaml.Unmarshal(text, out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func written(t *testing.T, config any) (path string) {
	t.Helper()
	text, err := yaml.Marshal(config)
	must(t, err)
	path = filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// runs starts a program and waits until it is ready at its address.
func runs(t *testing.T, program programs.Program, address string, args ...string) {
	t.Helper()
	file, err := program.Build(t.Context())
	must(t, err)
	name := filepath.Base(file)
	cmd := exec.CommandContext(t.Context(), file, args...)
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = said, said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(said.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", name, text)
		}
		_ = said.Close()
	})
	await.Until(t, name+" is ready", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/-/ready", nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
