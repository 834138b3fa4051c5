package attackers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// repo is what a hostile Git server tries. It has files of a real repository, which Git itself
// serves, or answers by itself.
type repo struct {
	name, tries string
	files       map[string]string
	more        func(*gitserver.Repository) // changes the working tree before the push
	serve       http.HandlerFunc            // in place of Git
	kind, path  string                      // of the source; manifests when empty
	brings      bool                        // what is in it may be applied
	says        string                      // is in the error
}

// gitHost is a hostile Git server at the address that the cluster reaches.
type gitHost struct {
	*gitserver.Server
	url   string
	ca    string
	serve map[string]http.HandlerFunc // by the repository's name
}

func startGit(t *testing.T) *gitHost {
	t.Helper()
	g := &gitHost{Server: gitserver.Start(t, "", ""), serve: map[string]http.HandlerFunc{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(sys.HostIP(), "0"))
	require.NoError(t, err)
	inner := g.HTTPS.Config.Handler
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/team/"), "/")
		if h := g.serve[name]; h != nil {
			h(w, r)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	cert, key, err := selfsigned.PEM(sys.HostIP())
	require.NoError(t, err)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	g.ca = cert
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	g.url = "https://" + listener.Addr().String() + "/team" // a Secret is for a path
	return g
}

// TestSource_HostileRepository has an honest Runner, whom the policy lets follow repositories,
// follow some of a server that means ill.
func TestSource_HostileRepository(t *testing.T) {
	setPolicy(t, repositories)
	enforceBaseline(t)
	_, err := sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "-f", "../../../deployments/sources.yaml")
	require.NoError(t, err)
	git, c := startGit(t), newCaller(t, honest)
	gitLogin(t, git, "git-login")
	follow := func(name string, r repo) sourceAnswer { return followed(t, c, git, name, r) }
	s := open(t, func() {
		large := map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good-source}\ndata: {a: b}\n", "b": incompressible(900 << 10), "c": incompressible(800 << 10)}
		for i := range 3 { // 4 MiB in all: half of what the agent takes of one repository
			large[fmt.Sprintf("%d", i)] = incompressible(900<<10 - i)
		}
		git.Create(t, "team/good").Commit(large)
		got := follow("good", repo{})
		require.Equal(t, "Ready", got.Status.Phase, "%s", got.raw)
	})
	all := repos(git)
	names := map[string]bool{}
	for i, r := range all {
		require.False(t, names[r.name], r.name)
		names[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			got := followed(t, c, git, fmt.Sprintf("evil-%d", i), r)
			s.hear(r.name, got.raw)
			t.Logf("%s: %.300s", got.Status.Phase, got.Status.Error.Message)
			if !r.brings {
				assert.Equal(t, "Failed", got.Status.Phase, "it tries: %s\n%s", r.tries, got.raw)
			}
			assert.Contains(t, got.Status.Error.Message, r.says)
		})
	}
	assert.GreaterOrEqual(t, len(all), leastAttempts)
	s.close()
}

type sourceAnswer struct {
	Status struct {
		Phase              string
		ObservedGeneration int64
		Error              struct{ Code, Message string }
	}
	raw []byte
}

// followed puts a source, and waits for what comes of it.
func followed(t *testing.T, c *caller, git *gitHost, name string, r repo) sourceAnswer {
	t.Helper()
	if r.serve != nil {
		git.serve[name] = r.serve
	} else if r.files != nil || r.more != nil {
		repository := git.Create(t, "team/"+name)
		if r.more != nil {
			r.more(repository)
		}
		repository.Commit(r.files)
	}
	kind := r.kind
	if kind == "" {
		kind = "manifests"
	}
	path := "/v1/namespaces/production/sources/" + name
	put := c.call(t.Context(), http.MethodPut, path, map[string]any{
		"url": git.url + "/" + name, "type": kind, "path": r.path, "credentials": "git-login", "interval": "24h",
	}, nil)
	require.Less(t, put.status, 300, "%v", put)
	var out sourceAnswer
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the source is settled", func(ctx context.Context) error {
		got := c.call(ctx, http.MethodGet, path, nil, nil)
		text, _, _ := bytes.Cut(got.body, []byte("\nmap["))
		if err := json.Unmarshal(text, &out); err != nil {
			return fmt.Errorf("%w: %v", err, got)
		}
		out.raw = got.body
		if p := out.Status.Phase; p == "" || p == "Pending" || p == "Progressing" && !r.brings {
			return fmt.Errorf("it is %s", p)
		}
		return nil
	}))
	gone := c.call(t.Context(), http.MethodDelete, path, nil, nil)
	assert.Less(t, gone.status, 300, "%v", gone)
	return out
}

func gitLogin(t *testing.T, git *gitHost, name string) {
	t.Helper()
	login(t, name, git.url)
	_, err := sys.Cluster.Kubectl(t.Context(), "-n", production, "patch", "secret", name, "--type=merge", "-p",
		fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, git.ca))
	require.NoError(t, err)
}

func repos(git *gitHost) []repo {
	one := func(text string) map[string]string { return map[string]string{"a.yaml": text} }
	object := func(version, kind, more string) map[string]string {
		return one("apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: worse" + more + "\n")
	}
	link := func(target string) func(*gitserver.Repository) {
		return func(r *gitserver.Repository) { _ = os.Symlink(target, filepath.Join(r.Work(), "link.yaml")) }
	}
	kustomization := func(text string) map[string]string { return map[string]string{"kustomization.yaml": text} }
	metadataURL := "https://169.254.169.254/"
	return []repo{
		{name: "an alias bomb in manifests", tries: "expand aliases in the agent", files: one(aliasBomb(9))},
		{name: "an alias bomb in an App", tries: "expand aliases in the agent", kind: "app", path: "a.yaml", files: one("image: a\n" + aliasBomb(9))},
		{name: "an alias bomb in a kustomization", tries: "expand aliases", kind: "kustomize", files: kustomization(aliasBomb(9))},
		{name: "values in values", tries: "overflow a stack", files: one(strings.Repeat("[", 100_000))},
		{name: "a Secret", tries: "bring a kind that is not allowed", files: object("v1", "Secret", "}"), says: "policy"},
		{name: "another team's namespace", tries: "write outside of its namespaces", files: object("v1", "ConfigMap", ", namespace: payroll}")},
		{name: "the policy", tries: "write its own policy", files: one("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pipeops-policy, namespace: pipeops}\n")},
		{name: "a binding to cluster-admin", tries: "be an administrator", files: object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}")},
		{name: "external IPs", tries: "take traffic to an address of others (CVE-2020-8554)", files: object("v1", "Service", "}\nspec: {ports: [{port: 80}], externalIPs: [192.0.2.1]}"), says: "CVE-2020-8554"},
		{name: "a privileged pod", tries: "make a privileged pod", files: object("apps/v1", "Deployment", "}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x, securityContext: {privileged: true}}]}}}"), brings: true},
		{name: "AppArmor by annotation", tries: "loosen AppArmor", files: object("apps/v1", "Deployment", "}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}}, spec: {containers: [{name: c, image: x}]}}}")},
		{name: "an App beyond its limits", tries: "make a privileged pod", kind: "app", path: "a.yaml", files: one("image: a\nsecurity: {privileged: true}\n")},
		{name: "an App with a snippet", tries: "write into the ingress controller", kind: "app", path: "a.yaml", files: one("image: a\nports: [{port: 80}]\ningress: {hosts: [{host: a.example.com}], annotations: {nginx.ingress.kubernetes.io/server-snippet: a}}\n")},
		{name: "a link out of the tree", tries: "read a file of the agent", more: link("/etc/passwd"), files: one("a: b")},
		{name: "a link that climbs", tries: "read a file of the agent", kind: "app", path: "link.yaml", more: link("../../../../etc/passwd"), files: one("a: b")},
		{name: "a link to the agent's token", tries: "read it", kind: "app", path: "link.yaml", more: link("/var/run/secrets/kubernetes.io/serviceaccount/token"), files: one("a: b")},
		{name: "a base elsewhere", tries: "have the agent fetch", kind: "kustomize", files: kustomization("resources: [\"" + git.url + "/good?ref=main\"]\n")},
		{name: "a base at the metadata address", tries: "read the cloud's credentials", kind: "kustomize", files: kustomization("resources: [\"" + metadataURL + "\"]\n")},
		{name: "a base in a file", tries: "read a file", kind: "kustomize", files: kustomization("resources: [\"/etc/passwd\"]\n")},
		{name: "a base that climbs", tries: "read a file", kind: "kustomize", files: kustomization("resources: [\"../../../../etc/passwd\"]\n")},
		{name: "a generator of files", tries: "read a file", kind: "kustomize", files: kustomization("configMapGenerator: [{name: a, files: [\"../../etc/passwd\"]}]\n")},
		{name: "a generator of the environment", tries: "read the environment", kind: "kustomize", files: kustomization("configMapGenerator: [{name: a, envs: [/proc/self/environ]}]\n")},
		{name: "an exec plugin", tries: "run a program", kind: "kustomize", files: map[string]string{
			"kustomization.yaml": "generators: [g.yaml]\n",
			"g.yaml":             "apiVersion: v1\nkind: G\nmetadata: {name: g, annotations: {config.kubernetes.io/function: \"exec: {path: ./run.sh}\"}}\n", "run.sh": "#!/bin/sh\nid\n",
		}},
		{name: "a container plugin", tries: "run an image", kind: "kustomize", files: map[string]string{
			"kustomization.yaml": "transformers: [g.yaml]\n",
			"g.yaml":             "apiVersion: v1\nkind: G\nmetadata: {name: g, annotations: {config.kubernetes.io/function: \"container: {image: evil}\"}}\n",
		}},
		{name: "helm by kustomize", tries: "run helm", kind: "kustomize", files: kustomization("helmCharts: [{name: a, repo: \"" + metadataURL + "\"}]\n")},
		{name: "a schema elsewhere", tries: "have it fetched", kind: "kustomize", files: kustomization("openapi: {path: \"" + metadataURL + "\"}\n")},
		{name: "a kustomization of itself", tries: "recurse without end", kind: "kustomize", files: kustomization("resources: [\".\"]\n")},
		{name: "filters and LFS", tries: "run a filter, and fetch", files: map[string]string{".gitattributes": "* filter=lfs\n", "a.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", ".lfsconfig": "[lfs]\nurl = " + metadataURL + "\n"}},
		{name: "a large file", tries: "fill the agent's memory", files: one(strings.Repeat("a: b\n", 3<<20/5)), brings: true},
		{name: "a small pack of much", tries: "unpack to 100 MiB", files: map[string]string{"a": strings.Repeat("a", 50<<20), "b": strings.Repeat("b", 50<<20), "a.yaml": "a: b"}},
		{name: "thousands of files", tries: "fill the agent's memory", files: thousands(12_000)},
		{name: "deep folders", tries: "overflow a stack", files: map[string]string{strings.Repeat("a/", 100) + "a.yaml": "a: b"}},
		{name: "a redirect to the metadata address", tries: "read the cloud's credentials", serve: moved(metadataURL + "info/refs")},
		{name: "a redirect to http", tries: "have the password sent in plain", serve: moved("http://" + sys.HostIP() + "/info/refs")},
		{name: "a redirect to a file", tries: "read a file", serve: moved("file:///etc/passwd")},
		{name: "a redirect out of the scope", tries: "take the password elsewhere", serve: moved("https://localhost/info/refs")},
		{name: "a page of control characters", tries: "write into a terminal", serve: text("\x1b[2J\u202e")},
		{name: "millions of branches", tries: "fill the agent's memory", serve: advertisement(branches(8<<20 - 64<<10))},
		{name: "branches without end", tries: "fill the agent's memory", serve: advertisement(branches(100 << 20)), says: "more than the agent takes"},
		{name: "an advertisement of garbage", tries: "crash the reader", serve: advertisement(stream(1<<20, "\xff\x00zzzz"))},
		{name: "a length of zero and one", tries: "crash the reader", serve: advertisement(text("0001000200030004"))},
		{name: "a header of 64 MiB", tries: "fill the agent's memory", serve: longHeader},
		{name: "a bomb in gzip", tries: "unpack to gigabytes", serve: advertisement(zipped(1 << 30))},
		{name: "a pack of 100 MiB", tries: "fill the agent's memory", serve: packing(func(w http.ResponseWriter, r *http.Request) {
			text(shallow)(w, r)
			stream(100<<20, "a")(w, r)
		})},
		{name: "a pack that announces gigabytes", tries: "have memory reserved", serve: packing(text(shallow + "PACK\x00\x00\x00\x02\xff\xff\xff\xff"))},
		{name: "an object that announces gigabytes", tries: "have memory reserved", serve: packing(text(shallow + "PACK\x00\x00\x00\x02\x00\x00\x00\x01\xbf\xff\xff\xff\xff\xff\x7f"))},
		{name: "an error of control characters", tries: "write into a terminal", serve: packing(text("0012ERR \x1b[2J\u202e e"))},
	}
}

func thousands(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("%d/%d.yaml", i%100, i)] = "a: b"
	}
	return out
}

// advertisement answers the first request of Git as a server does, and continues as it likes.
func advertisement(body http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		body(w, r)
	}
}

// shallow begins the answer to a request for one commit.
var shallow = "0034shallow " + strings.Repeat("1", 40) + "00000008NAK\n"

// branches is a good beginning of an advertisement, with n bytes of branches.
func branches(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, beginning())
		for i := 0; i < n; {
			line := fmt.Sprintf("%040x refs/heads/%08d\n", i+1, i)
			written, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line)
			if err != nil {
				return
			}
			i += written
		}
		_, _ = io.WriteString(w, "0000")
	}
}

// beginning is that of an advertisement, with a commit that HEAD is at.
func beginning() string {
	line := strings.Repeat("1", 40) + " HEAD\x00shallow ofs-delta\n"
	service := "# service=git-upload-pack\n"
	return fmt.Sprintf("%04x%s0000%04x%s", len(service)+4, service, len(line)+4, line)
}

// packing advertises a commit, and answers the request for it as it likes.
func packing(body http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			body(w, r)
			return
		}
		advertisement(text(beginning()+"0000"))(w, r)
	}
}
