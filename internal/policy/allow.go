package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// allowing returns the command by which the cluster's owner allows an intent that no rule of source
// is about; empty if that takes more than a command.
func allowing(i runnerapi.Intent, source string) string {
	switch {
	case i.Command == putRelease:
		return AllowChart(i) + fileFlag(source)
	case i.Runner == "" || i.Command == runnerapi.KubernetesCall: // whose user needs rights in the cluster
		return ""
	}
	command := fmt.Sprintf("pipeops-agent policy allow %s --runner %s", i.Command, i.Runner)
	if i.Namespace != "" {
		command += " -n " + i.Namespace
	}
	if slices.Contains(bringKinds, i.Command) {
		command += " --kind " + kindsOf(i)
	}
	return command + fileFlag(source)
}

// fileFlag returns the flag of a policy that is in a file, and not in the cluster.
func fileFlag(source string) string {
	if !filepath.IsAbs(source) {
		return ""
	}
	return " --file " + source
}

// kindsOf returns the kinds of an intent's objects, with commas.
func kindsOf(i runnerapi.Intent) string {
	var kinds []string
	for _, o := range i.Objects {
		if o.Kind != "" && !o.LookedUp {
			kinds = append(kinds, o.Kind)
		}
	}
	if len(kinds) == 0 {
		return "KIND.GROUP"
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), ",")
}

// BringsObjects reports whether a command brings objects of any kind, which a rule's kinds bound.
func BringsObjects(command string) bool { return slices.Contains(bringKinds, command) }

var notInName = regexp.MustCompile(`[^A-Za-z0-9._ -]+`)

// RuleName returns a name for a rule: the text, or if a name cannot be that, what fits of it and a
// digest of the whole.
func RuleName(text string) string {
	if ruleName.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	digest := " " + hex.EncodeToString(sum[:5])
	fits := strings.Trim(notInName.ReplaceAllString(text, "-"), " ._-")
	return strings.TrimRight(fits[:min(len(fits), maxName-len(digest))], " ._-") + digest
}

// NameOf returns a name for a rule that has none, by what it allows.
func NameOf(r Rule) string {
	words := slices.Concat(r.Commands, []string{"for"}, r.Runners)
	if len(r.Namespaces) > 0 {
		words = slices.Concat(words, []string{"in"}, r.Namespaces)
	}
	return RuleName(strings.Join(words, " "))
}
