package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// load is shared, because `go list` takes seconds.
var load = sync.OnceValues(func() (*module, error) { return loadModule(context.Background()) })

// repository loads the module as the command does: from its root.
func repository(t *testing.T) *module {
	t.Helper()
	t.Chdir(filepath.Join("..", "..", "..", ".."))
	m, err := load()
	require.NoError(t, err)
	own := *m
	return &own
}

func TestEveryPackageIsInOneGroup(t *testing.T) {
	m := repository(t)
	real, own := m.groups()
	require.ElementsMatch(t, m.tested(), slices.Concat(real, own))
	require.Contains(t, real, modulePath+"/internal/app")
	require.Contains(t, real, modulePath+"/test/e2e")
	require.Contains(t, real, modulePath+"/cmd/runner/command")
	require.Contains(t, own, modulePath+"/runnerapi/server")
	require.Contains(t, own, modulePath+"/tunnel/server")
}

func TestEveryPartHasJobs(t *testing.T) {
	m := repository(t)
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
		require.NotEmpty(t, p.jobs(m), p.name)
		for _, j := range p.jobs(m) {
			require.NotEmpty(t, j.packages, "%s: %s", p.name, j.name)
		}
	}
	require.ElementsMatch(t, names, strings.Split(partNames, ", "))
}

// TestReleaseTestsAreFound in their functions, subtests included, and nothing else of their
// package.
func TestReleaseTestsAreFound(t *testing.T) {
	m := repository(t)
	require.Contains(t, m.releasing(modulePath+"/test/e2e"), "TestKubernetes_KubectlInTunnel", "some of its subtests")
	require.NotContains(t, m.releasing(modulePath+"/test/e2e"), "TestFootprint_IdleAgent")
	require.Empty(t, furtherJobs(m, modulePath+"/test/suite/cmd/suite"))
	for _, j := range furtherJobs(m, modulePath+"/test/demo") {
		require.Contains(t, j.env, release[0])
		require.Contains(t, j.pattern(), "TestDemo_Runs")
	}
}

func TestEveryFuzzTargetHasAJob(t *testing.T) {
	m := repository(t)
	var jobs []string
	for _, j := range fuzzJobs(m) {
		jobs = append(jobs, j.name)
	}
	require.Contains(t, jobs, "internal/trustanchor FuzzParse")
	total := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, benchModule) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			total += strings.Count(string(text), "\nfunc Fuzz")
		}
		return err
	}))
	require.Len(t, jobs, total)
}

func TestInputs(t *testing.T) {
	m := repository(t)
	databases, err := partNamed("databases")
	require.NoError(t, err)
	in := m.inputs(databases, databases.jobs(m)[0])
	for file, is := range map[string]bool{
		"internal/controlplane/store/testdata/x": true,
		"internal/problem/problem.go":            true, // imported
		"go.sum":                                 true,
		"scripts/install.sh":                     false,
		"docs/operator/webhooks.md":              true,
		"README.md":                              true,
		"internal/app/diagnose/diagnose.go":      false,
	} {
		require.Equal(t, is, in.has(file), file)
	}
	machines, err := partNamed("machines")
	require.NoError(t, err)
	in = m.inputs(machines, machines.jobs(m)[0])
	require.True(t, in.has("scripts/install/main.sh"))
	require.True(t, in.has("deployments/systemd/pipeops-agent.service"))
	require.True(t, in.has("internal/app/diagnose/diagnose.go"), "it is compiled into the agent")
	require.True(t, in.has("docs/cluster-owner/install.md"), "its commands are run")
	require.True(t, in.has("README.md"))
	require.False(t, in.has("LICENSE"))
}

// TestWhatTestsNameIsAnInput holds the parts' inputs against the paths that stand in their tests.
func TestWhatTestsNameIsAnInput(t *testing.T) {
	m := repository(t)
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			in := m.inputs(p, j)
			for _, pkg := range j.packages {
				for path, at := range m.named(t, pkg, j.pattern()) {
					require.True(t, in.has(path), "part %s: %s names %s, which is none of its inputs", p.name, at, path)
				}
			}
		}
	}
}

// named returns the paths of the repository's files that stand as texts in a package's tests. With
// a pattern, it looks at the files alone whose tests match it.
func (m *module) named(t *testing.T, pkg, pattern string) map[string]string {
	t.Helper()
	found := map[string]string{}
	files, err := filepath.Glob(filepath.Join(m.dirs[pkg], "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if pattern != "" && !declares(parsed, regexp.MustCompile(pattern)) {
			continue
		}
		for node := range ast.Preorder(parsed) {
			if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
				path, err := strconv.Unquote(text.Value)
				require.NoError(t, err)
				if path = namedPath(path); path != "" {
					found[path] = file
				}
			}
		}
	}
	return found
}

// declares reports whether a file has a function whose name matches a pattern.
func declares(file *ast.File, pattern *regexp.Regexp) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && pattern.MatchString(f.Name.Name)
	})
}

var ofRoot = regexp.MustCompile(`^(?:\.\./)*((?:docs|scripts|deployments)/[\w./-]+|README\.md|Dockerfile)$`)

func namedPath(text string) string {
	found := ofRoot.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	if _, err := os.Stat(found[1]); err != nil {
		return ""
	}
	return strings.TrimSuffix(found[1], "/")
}

func TestAMarkChangesWithTheContentOfInputs(t *testing.T) {
	m := repository(t)
	p, err := partNamed("databases")
	require.NoError(t, err)
	j := p.jobs(m)[0]
	mark := func(files ...string) string {
		name, err := m.mark(p, j, files)
		require.NoError(t, err)
		return name
	}
	before := mark("go.mod", "LICENSE")
	require.Equal(t, before, mark("go.mod"), "the license is no input")
	require.NotEqual(t, before, mark("go.mod", "go.sum"))
	root := t.TempDir()
	m.root = root
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("changed"), 0o600))
	require.NotEqual(t, before, mark("go.mod"))
	require.NotEqual(t, mark("go.mod"), func() string { j.env = []string{"X=1"}; return mark("go.mod") }())
}

func TestKnowledge(t *testing.T) {
	m := repository(t)
	k, err := loadKnowledge()
	require.NoError(t, err)
	for pkg := range k.budgets {
		require.True(t, pkg == "default" || m.test[modulePath+"/"+pkg], "budgets.txt: %s has no tests", pkg)
	}
	for text, fault := range map[string]string{
		"internal/app":            "line 1: expected a package and a duration",
		"default 1s\na soon":      "line 2: time: invalid duration",
		"# no lines\ninternal 2s": `no line for "default"`,
	} {
		_, err := parseBudgets(text)
		require.ErrorContains(t, err, fault)
	}
	for text, fault := range map[string]string{"a TestX": "line 1: expected", "a TestX (": "line 1: error parsing"} {
		_, err := parseSkips(text)
		require.ErrorContains(t, err, fault)
	}
}

func TestUnknownCommands(t *testing.T) {
	m := repository(t)
	for _, args := range [][]string{{"everything"}, {"part"}, {"part", "nothing"}, {"test", "x"}, {"package", "./nothing"}} {
		require.Error(t, dispatch(t.Context(), &strings.Builder{}, m, args), args)
	}
	require.Error(t, run(t.Context(), &strings.Builder{}, nil))
}
