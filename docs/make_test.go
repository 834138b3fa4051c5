package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// makeLine is a call of make in code: the target, and what follows up to a comment.
	makeLine = regexp.MustCompile("(?:^|[\n`] *|[A-Z_]+=\\S+ )make ([a-z][a-z-]*)([^\n`|#;]*)")
	// goRun is a call of the go command with packages of this repository.
	goRun = regexp.MustCompile(`go (?:run|test|vet|build)[^\n` + "`" + `|#;]*? (\./[\w./-]+)`)
	// helped is a line of the Makefile from which `make help` is made.
	helped = regexp.MustCompile(`(?m)^([a-z][a-z-]*):.*?## (.*)$`)
	// setting is a variable with its value.
	setting = regexp.MustCompile(`\b([A-Z][A-Z_]*)=("[^"]*"|[^\s"` + "`" + `:;,()]+)`)
	// settings of the environment, which no recipe passes on
	ofEnvironment = map[string]string{"VULN_REQUIRED": "scripts/vulncheck/main.go", "GOVULNDB": "scripts/vulncheck/main.go"}
)

// TestMake_DocumentedCommands holds each `make TARGET VARIABLE=VALUE` of the pages and of `make
// help` against the Makefile, and its packages and tests against the code. The targets demo, test,
// check, test-touched and bare-clone run in CI. Those that check needs run with it. The others take
// too long, or publish, and `make -n` expands them here.
func TestMake_DocumentedCommands(t *testing.T) {
	makefile := read(t, "../Makefile")
	type command struct{ page, target, args string }
	var found []command
	for _, m := range helped.FindAllStringSubmatch(makefile, -1) {
		args := ""
		for _, s := range setting.FindAllString(m[2], -1) {
			if !strings.Contains(m[2], "make "+m[1]+"-") {
				args += " " + s
			}
		}
		found = append(found, command{"make help", m[1], args})
	}
	for page := range pages(t) {
		for _, code := range inCode.FindAllString(read(t, page), -1) {
			for _, m := range makeLine.FindAllStringSubmatch(code, -1) {
				found = append(found, command{page, m[1], m[2]})
			}
			for _, m := range goRun.FindAllStringSubmatch(code, -1) {
				checkPackage(t, page, m[1])
			}
		}
	}
	require.Greater(t, len(found), 80)
	plain, expanded := []string{}, map[string]bool{} // a call of make takes half a second
	for _, c := range found {
		said := c.page + ": make " + c.target + c.args
		args := []string{c.target}
		values := map[string]string{}
		for _, m := range setting.FindAllStringSubmatch(c.args, -1) {
			values[m[1]] = strings.Trim(m[2], `"`)
			args = append(args, m[1]+"="+values[m[1]])
			from := makefile
			if file := ofEnvironment[m[1]]; file != "" {
				from = read(t, "../"+file)
			}
			assert.Regexp(t, `\$\((or \$\(|filter 1h,\$\()?`+m[1]+`\)|\$\((if|or) \$\(`+m[1]+`\)|"`+m[1]+`"`, from, "%s: nothing takes %s", said, m[1])
		}
		if c.target == "t" && values["PKG"] != "" {
			checkPackage(t, said, values["PKG"])
			checkRun(t, said, values["PKG"], values["RUN"])
		}
		if c.target == "t" && values["PKG"] == "" {
			args = append(args, "PKG=./internal/app")
		}
		if len(args) == 1 {
			plain = append(plain, c.target)
		} else if key := strings.Join(args, " "); !expanded[key] {
			expanded[key] = true
			expand(t, said, args)
		}
	}
	expand(t, "commands without settings", plain)
}

func expand(t *testing.T, said string, args []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", append([]string{"-n", "--no-print-directory", "-C", ".."}, args...)...).CombinedOutput()
	assert.NoError(t, err, "%s: %s", said, out)
}

func checkPackage(t *testing.T, said, pkg string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(pkg, "/...") || len(files) > 0, "%s: there is no package %s", said, pkg)
}

// checkRun looks for a test of the package whose name matches the pattern.
func checkRun(t *testing.T, said, pkg, pattern string) {
	t.Helper()
	for name := range testsOf(t, pkg) {
		if strings.HasPrefix(name, "Test") && regexp.MustCompile(pattern).MatchString(name) {
			return
		}
	}
	assert.Fail(t, "no test matches", "%s: %s has no test %s", said, pkg, pattern)
}
