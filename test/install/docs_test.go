package install

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	guides   = []string{"../../docs/install.md", "../../docs/troubleshooting.md"}
	anyBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	namedOne = regexp.MustCompile("(?s)<!-- run: ([a-z-]+) -->\n```sh\n(.*?)```")
)

// documented are the commands of the guides, by name. The tests run these very
// commands on machines.
func documented(t *testing.T) map[string]string {
	t.Helper()
	commands := map[string]string{}
	for _, guide := range guides {
		for _, block := range namedOne.FindAllStringSubmatch(string(read(t, guide)), -1) {
			commands[block[1]] = block[2]
		}
	}
	return commands
}

// TestEveryCommandInTheGuidesIsRun: by one of the tests here.
func TestEveryCommandInTheGuidesIsRun(t *testing.T) {
	tests := string(read(t, "life_test.go")) + string(read(t, "computer_test.go")) + string(read(t, "offline_test.go")) + string(read(t, "upgrade_test.go"))
	for _, guide := range guides {
		text := string(read(t, guide))
		assert.Len(t, namedOne.FindAllString(text, -1), len(anyBlock.FindAllString(text, -1)), "%s has a block without a name", guide)
	}
	for name := range documented(t) {
		assert.True(t, regexp.MustCompile(`guide\(t, "[a-z ]*\b`+name+`\b`).MatchString(tests), "the commands %q of the guides are run by no test", name)
	}
}

// TestSymptomsAreWhatIsSaid: what the guide has users look for is what they see.
func TestSymptomsAreWhatIsSaid(t *testing.T) {
	script := string(read(t, "../../scripts/install.sh"))
	symptom := regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := symptom.FindAllStringSubmatch(string(read(t, guides[1])), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		for _, words := range quoted.FindAllStringSubmatch(row[1], -1) {
			assert.True(t, strings.Contains(script, words[1]), "install.sh never says %q", words[1])
		}
	}
}

// TestExitCodesAreDocumented: the guide's and the help's are the script's.
func TestExitCodesAreDocumented(t *testing.T) {
	script, guide := string(read(t, "../../scripts/install.sh")), string(read(t, guides[0]))
	codes := regexp.MustCompile(`EXIT_[A-Z]+=(\d+)`).FindAllStringSubmatch(script, -1)
	require.Len(t, codes, 11)
	_, help, _ := strings.Cut(script, "\nExit codes\n")
	help, _, _ = strings.Cut(help, "\nTEXT")
	for _, code := range codes {
		assert.Regexp(t, `\| `+code[1]+` \| [a-z]`, guide)
		assert.Regexp(t, `\b`+code[1]+` [a-z]`, help)
	}
}
