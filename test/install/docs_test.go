package install

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

var (
	guides   = []string{"../../docs/cluster-owner/install.md", "../../docs/troubleshooting.md", "../../docs/get-started/server.md"}
	anyBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	namedOne = regexp.MustCompile("(?s)<!-- run: ([a-z-]+) -->\n```sh\n(.*?)```")
)

// documented are the commands of the guides, by name. The tests run these very
// commands on machines.
func documented(t *testing.T) map[string]string {
	t.Helper()
	commands, err := readGuides()
	require.NoError(t, err)
	return commands
}

func readGuides() (map[string]string, error) {
	commands := map[string]string{}
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		if err != nil {
			return nil, err
		}
		named := namedOne.FindAllStringSubmatch(string(text), -1)
		if len(named) != len(anyBlock.FindAllString(string(text), -1)) {
			return nil, fmt.Errorf("%s has commands without a name", guide)
		}
		for _, block := range named {
			if other, known := commands[block[1]]; known && other != block[2] {
				return nil, fmt.Errorf("the guides have two different blocks of commands %q", block[1])
			}
			commands[block[1]] = block[2]
		}
	}
	return commands, nil
}

// ran are the guides' commands that have run on a machine and succeeded, by name.
var ran struct {
	sync.Mutex
	names map[string]bool
}

func noteRun(names []string) {
	ran.Lock()
	defer ran.Unlock()
	if ran.names == nil {
		ran.names = map[string]bool{}
	}
	for _, name := range names {
		ran.names[name] = true
	}
}

// allRan returns an error unless each command of the guides has run and succeeded, and what they
// have users look for was said. It looks after a run of all tests of this package: the release
// suite.
func allRan() error {
	selected := flag.Lookup("test.run").Value.String() + flag.Lookup("test.skip").Value.String() + flag.Lookup("test.list").Value.String()
	if testing.Short() || os.Geteuid() != 0 || selected != "" || !suite.IsRelease() {
		return nil
	}
	commands, err := readGuides()
	if err != nil {
		return err
	}
	ran.Lock()
	defer ran.Unlock()
	maps.DeleteFunc(commands, func(name, _ string) bool { return ran.names[name] })
	if len(commands) > 0 {
		return fmt.Errorf("these commands of the guides were run by no test with success: %q", slices.Sorted(maps.Keys(commands)))
	}
	return allHeard()
}

func TestDocs_CommandNames(t *testing.T) { require.NotEmpty(t, documented(t)) }

// heard is all that install.sh has said in the tests.
var heard struct {
	sync.Mutex
	text strings.Builder
}

func noteSaid(said string) {
	heard.Lock()
	defer heard.Unlock()
	heard.text.WriteString(said)
}

var (
	symptom = regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// allHeard returns an error unless install.sh has said in the tests what docs/troubleshooting.md
// has users look for, after a run of all tests of this package.
func allHeard() error {
	guide, err := os.ReadFile(guides[1])
	if err != nil {
		return err
	}
	heard.Lock()
	defer heard.Unlock()
	var unheard []string
	rows := symptom.FindAllStringSubmatch(string(guide), -1)
	for _, row := range rows {
		for _, words := range quoted.FindAllStringSubmatch(row[1], -1) {
			if !strings.Contains(heard.text.String(), words[1]) {
				unheard = append(unheard, words[1])
			}
		}
	}
	if len(rows) == 0 || len(unheard) > 0 {
		return fmt.Errorf("%d symptoms in %s; install.sh said these in no test: %q", len(rows), guides[1], unheard)
	}
	return nil
}
