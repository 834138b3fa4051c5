package ingress

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"sync"
)

const (
	// maxPattern bounds a regular expression, in bytes, and maxInstructions what it compiles to:
	// the time to match a path is in proportion to both its length and these.
	maxPattern, maxInstructions = 1024, 1000
	// maxPatterns bounds the regular expressions of one HTTPRoute, and maxKept those that stay
	// compiled.
	maxPatterns, maxKept = 64, 2000
)

// compilePattern compiles a regular expression that matches a whole value. The syntax is RE2's.
func compilePattern(text string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("has %d bytes, more than the %d that the gateway takes", len(text), maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, errors.New("is not a regular expression of RE2")
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return nil, errors.New("takes too long to match; use fewer and smaller repetitions")
	}
	return regexp.Compile(`^(?:` + text + `)$`)
}

// patterns are regular expressions of HTTPRoutes, each compiled once.
type patterns struct {
	mu    sync.Mutex
	known map[string]*regexp.Regexp
}

// compile is compilePattern for one that may be compiled already.
func (p *patterns) compile(text string) (*regexp.Regexp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[text]; known != nil {
		return known, nil
	}
	compiled, err := compilePattern(text)
	if err != nil {
		return nil, err
	}
	if p.known == nil || len(p.known) >= maxKept {
		p.known = map[string]*regexp.Regexp{}
	}
	p.known[text] = compiled
	return compiled, nil
}
