package doctor

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// masked replaces a secret.
const masked = "********"

// shortestSecret is the minimum length: masking shorter texts would ruin a log.
const shortestSecret = 4

// The formats of secrets that are not known in advance.
var shapes = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), masked + " private key"},
	{regexp.MustCompile(`pipeops_([a-z2-7]{16})_[a-z2-7]{8,}(\.[0-9a-f]+)?`), "pipeops_${1}_" + masked},
	{regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]*)?`), masked + " JWT"},
	{regexp.MustCompile(`(://[^/\s:@"']*):[^/\s@"']+@`), "${1}:" + masked + "@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}`), "${1}${2}" + masked},
	{regexp.MustCompile(`(?i)("?\b[\w-]*(?:password|passwd|secret|token|api[_-]?key)"?\s*[:=]\s*"?)[^\s",;}]{4,}`), "${1}" + masked},
}

// redactor removes secrets from text: the known ones, and everything that has the format of one.
type redactor struct{ known *strings.Replacer }

func newRedactor(secrets []string) redactor {
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // whole before part
	var pairs []string
	for _, s := range secrets {
		if len(s) >= shortestSecret {
			pairs = append(pairs, s, masked)
			if escaped := url.QueryEscape(s); escaped != s {
				pairs = append(pairs, escaped, masked)
			}
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) text(s string) string {
	s = r.known.Replace(s)
	for _, shape := range shapes {
		s = shape.find.ReplaceAllString(s, shape.replace)
	}
	return s
}
