package manifests_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"

func decode(text string) (manifests.Documents, error) { return manifests.Read(strings.NewReader(text)) }

func TestDecode(t *testing.T) {
	docs, err := decode("# a note\n---\n" + fmt.Sprintf(configMap, "one") + `data: {mode: "yes"}
---
# nothing
--- # and a note
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "1", "managedFields": []},
   "spec": {"replicas": 3}, "status": {"replicas": 1}}]}
`)
	require.NoError(t, err)
	require.Len(t, docs.Objects, 2)
	assert.Equal(t, "one", docs.Objects[0].GetName())
	assert.Equal(t, "document 1, line 3", docs.Where(docs.Objects[0]))
	web := docs.Objects[1]
	assert.Equal(t, "document 2, line 11", docs.Where(web))
	assert.Equal(t, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "shop"},
		"spec": map[string]any{"replicas": int64(3)},
	}, web.Object)
}

// TestDecode_ListsLikeKubectl compares with the decoder that kubectl has.
func TestDecode_ListsLikeKubectl(t *testing.T) {
	for _, list := range []string{
		`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"},"data":{"k":"v"}},{"metadata":{"name":"b"}}]}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleList","items":[{"metadata":{"name":"a"}},{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}]}`,
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMapList","items":[{"metadata":{"name":"a"}}]}]}`,
		`{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`,
	} {
		want := []map[string]any{}
		require.NoError(t, eachLikeKubectl([]byte(list), func(o map[string]any) { want = append(want, o) }))
		docs, err := decode(list)
		require.NoError(t, err, list)
		have := []map[string]any{}
		for _, o := range docs.Objects {
			have = append(have, o.Object)
		}
		assert.Equal(t, want, have)
	}
}

// TestRead_InputsLikeKubectl reads what people brought with kubectl's libraries too. The API server
// judges types and list entries that are there twice, so both pass them on.
func TestRead_InputsLikeKubectl(t *testing.T) {
	differs := map[string]string{
		"09-yes-and-on-keys.yaml": "the key on is there twice, first in line 4 as yes", // kubectl drops one without a warning
	}
	files, err := filepath.Glob("testdata/inputs/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 9)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			want := []map[string]any{}
			documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
			for {
				var raw runtime.RawExtension
				err := documents.Decode(&raw)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				require.NoError(t, eachLikeKubectl(raw.Raw, func(o map[string]any) { want = append(want, o) }))
			}
			docs, err := decode(string(text))
			if says, otherwise := differs[filepath.Base(file)]; otherwise {
				require.ErrorContains(t, err, says)
				return
			}
			require.NoError(t, err)
			have := []map[string]any{}
			for _, o := range docs.Objects {
				have = append(have, o.Object)
			}
			assert.Equal(t, want, have)
			assert.NotEmpty(t, have)
		})
	}
}

func eachLikeKubectl(raw []byte, do func(map[string]any)) error {
	object, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
	if err != nil {
		return err
	}
	list, isList := object.(*unstructured.UnstructuredList)
	if !isList {
		do(object.(*unstructured.Unstructured).Object)
		return nil
	}
	for _, item := range list.Items {
		inner, err := item.MarshalJSON()
		if err == nil {
			err = eachLikeKubectl(inner, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestDecode_LikeKubernetes has YAML 1.1, in which yes is true and 0644 is octal, and anchors.
func TestDecode_LikeKubernetes(t *testing.T) {
	docs, err := decode("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: no, mode: 0644, a: &x {k: v}, b: *x, c: {<<: *x, l: w}, when: 2026-01-02}\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"hostNetwork": false, "mode": int64(0o644), "a": map[string]any{"k": "v"}, "b": map[string]any{"k": "v"},
		"c": map[string]any{"k": "v", "l": "w"}, "when": "2026-01-02",
	}, docs.Objects[0].Object["spec"])
}

func TestDecode_NamesDocumentAndLine(t *testing.T) {
	good := fmt.Sprintf(configMap, "good") + "---\n"
	for name, c := range map[string]struct{ text, at, says string }{
		"no YAML":               {"a: [\nb: c\n", "document 2", "not YAML"},
		"not a mapping":         {"- a\n", "document 2, line 5", "mapping with apiVersion"},
		"no kind":               {"apiVersion: v1\nmetadata: {name: a}\n", "document 2, line 5", "kind is missing"},
		"no API version":        {"kind: Pod\nmetadata: {name: a}\n", "document 2, line 5", "apiVersion is missing"},
		"no metadata":           {"apiVersion: v1\nkind: Pod\n", "document 2, line 5", "metadata is missing"},
		"not a name":            {"apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: a-\n", "document 2, line 8", "generateName"},
		"a path for a name":     {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: ../a\n", "document 2, line 8", "not a name"},
		"a path for a kind":     {"apiVersion: v1\nkind: Pod/x\nmetadata: {name: a}\n", "document 2, line 6", "no kind"},
		"a number for a name":   {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: 1\n", "document 2, line 8", "not a name"},
		"no namespace's name":   {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: ../b\n", "document 2, line 9", "name of a namespace"},
		"a number for a label":  {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {a: b,\n    c: 1}\n", "document 2, line 10", "metadata.labels.c has to be a text: put it in quotes"},
		"a list of labels":      {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: [a]\n", "document 2, line 9", "not a mapping"},
		"yes and on":            {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {yes: b, on: c}\n", "document 2, line 8", "the key on is there twice, first in line 8 as yes"},
		"a key twice":           {"apiVersion: v1\nkind: Pod\nkind: Pod\n", "document 2, line 7", "there twice, first in line 6"},
		"no item":               {"apiVersion: v1\nkind: List\nitems:\n- a\n", "document 2, line 8", "item of a List"},
		"no text for a key":     {"apiVersion: v1\n? [a]\n: b\n", "document 2, line 6", "a key has to be"},
		"deep":                  {"apiVersion: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "document 2, line 5", "nested more than"},
		"an alias of itself":    {"apiVersion: v1\nkind: &a [*a]\n", "document 2, line 6", ""},
		"documents without ---": {"apiVersion: v1\n...\na: b\n", "document 2, line 6", "not YAML"},
		"an unknown alias":      {"apiVersion: *hunter2\n", "document 2", "not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(good + c.text)
			p := problemtest.Of(t, err)
			assert.Contains(t, p.Detail, c.at)
			assert.Contains(t, p.Detail, c.says)
			assert.Contains(t, p.Location, "document 2, line ")
		})
	}
}

// TestDecode_NamesAllMistakes expects the valid documents to be read.
func TestDecode_NamesAllMistakes(t *testing.T) {
	docs, err := decode(fmt.Sprintf(configMap, "one") + "---\na: [\n---\n" + fmt.Sprintf(configMap, "two") + `---
apiVersion: v1
kind: List
items:
- a
- {apiVersion: v1, kind: Pod, metadata: {name: ../a}}
- {apiVersion: v1, kind: Pod, metadata: {name: three}}
---
apiVersion: v1
`)
	p := problemtest.Of(t, err)
	assert.Equal(t, problem.Invalid, p.Code)
	var at []string
	for _, f := range p.Fields {
		at = append(at, f.Location)
		assert.Contains(t, f.Message, f.Location)
	}
	assert.Equal(t, []string{"document 2, line 5", "document 4, line 14", "document 4, line 15", "document 5, line 18"}, at)
	var read []string
	for _, u := range docs.Objects {
		read = append(read, u.GetName()+" in "+docs.Where(u))
	}
	assert.Equal(t, []string{"one in document 1, line 1", "two in document 3, line 7", "three in document 4, line 16"}, read)

	_, err = decode("\xff\xfea\x00")
	assert.Contains(t, problemtest.Of(t, err).Detail, "UTF-16")
	docs, err = decode("\ufeff" + fmt.Sprintf(configMap, "one") + "---\r\n\ufeff" + fmt.Sprintf(configMap, "two"))
	require.NoError(t, err)
	assert.Len(t, docs.Objects, 2)

	docs, err = decode(fmt.Sprintf(configMap, "one") + strings.Repeat("---\na: b\n", problem.MaxTold+5))
	p = problemtest.Of(t, err)
	assert.Len(t, p.Fields, problem.MaxTold)
	assert.Empty(t, docs.Objects, "an answer has no room for what may be wrong with them")
	docs, err = decode(fmt.Sprintf(configMap, "one") + "---\na: b\n---\na: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n---\na: b\n")
	p = problemtest.Of(t, err)
	assert.Len(t, p.Fields, 2, "a limit ends it")
	assert.Empty(t, docs.Objects)
}

func TestDecode_RefusesBombs(t *testing.T) {
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for n := 1; n < 10; n++ {
		ref := fmt.Sprintf("*a%d", n-1)
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", n, n, strings.TrimSuffix(strings.Repeat(ref+",", 10), ","))
	}
	long := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 1000), ",") + "]\n"
	for name, c := range map[string]struct{ text, says string }{
		"aliases that stand for a billion values": {bomb, "aliases"},
		"aliases that stand for a GiB":            {long, "aliases"},
		"50 MiB":                                  {strings.Repeat("a", 50<<20), "more than 4194304 bytes"},
		"10 000 documents":                        {strings.Repeat(fmt.Sprintf(configMap, "a")+"---\n", 10_000), "document 1001, line 4001"},
		"a List of 10 000":                        {"apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", 10_000), "line 1004"},
		"a million entries":                       {"a: [" + strings.Repeat("x,", 1<<20) + "x]", "lines, entries and levels"},
		"a million levels":                        {strings.Repeat("- ", 1<<20), "lines, entries and levels"},
		"a million notes":                         {strings.Repeat("#\n", 1<<20), "lines, entries and levels"},
		"as many levels as are read":              {strings.Repeat("- ", 90_000), ""},
		"as many keys as are read":                {strings.Repeat("? ", 90_000), ""},
		"4 MiB of one text":                       {strings.Repeat("a", 4<<20), "mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(c.text)
			p := problemtest.Of(t, err)
			assert.Contains(t, p.Detail, c.says)
		})
	}
}

func TestDecode_QuotesNoValues(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Secret\ndata: {a: hunter2, b: [}\n", "stringData: \"hunter2\n", "a: 'hunter2' 'hunter2'\n", "a: `hunter2\n",
		"a: !!int hunter2\n", "a: !!binary hunter2!\n", "a: *hunter2\n", "apiVersion: hunter2 hunter2\nkind: a\nmetadata: {name: a}\n",
	} {
		_, err := decode(text)
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "hunter2", text)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		fmt.Sprintf(configMap, "a"), "---\n---\n", "a: &a [*a]\n", "a: b\n<<: {c: d}\n", "{\"apiVersion\":\"v1\"}", "%YAML 1.1\n---\na: b\n",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]\n", "? a\n: b\n", "a: !!binary x\n", "\ufeff--- |\n a\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		docs, err := manifests.Read(bytes.NewReader(text))
		if err != nil {
			problemtest.Of(t, err)
		}
		for _, u := range docs.Objects {
			require.NotEmpty(t, u.GetName())
			require.NotEmpty(t, u.GetKind())
			require.Contains(t, docs.Where(u), "document ")
			_, err := u.MarshalJSON()
			require.NoError(t, err)
		}
	})
}
