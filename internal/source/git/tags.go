package git

import (
	"bytes"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const tags = "refs/tags/"

// peeled ends the name of the line that has what an annotated tag leads to.
var peeled = []byte("^{}")

// newest finds the tag with the newest version of a range. It keeps the lines of that tag alone.
type newest struct {
	within  *semver.Constraints
	pattern string
	tag     string // empty before the first that matches
	version *semver.Version
	lines   []byte
	tags    int // how many there are
	others  int // how many of them are no versions
}

func newestWithin(pattern string) (*newest, error) {
	within, err := semver.NewConstraint(pattern)
	if err != nil {
		return nil, failed(RefMissing, "correct ref.semver, for example: >=1.2.0 <2", "ref.semver %q is not a range of versions", clip(pattern))
	}
	return &newest{within: within, pattern: pattern}, nil
}

// see takes a ref, and the pkt-line that it is from; nil for one that was passed on.
func (n *newest) see(ref, line []byte) {
	name, is := bytes.CutPrefix(ref, []byte(tags))
	if !is {
		return
	}
	if of, is := bytes.CutSuffix(name, peeled); is {
		if string(of) == n.tag { // it follows the tag's own line
			n.lines = append(n.lines, line...)
		}
		return
	}
	n.tags++
	version, err := semver.StrictNewVersion(strings.TrimPrefix(string(name), "v"))
	if err != nil {
		n.others++
		return
	}
	if n.within.Check(version) && n.precedes(string(name), version) {
		n.tag, n.version, n.lines = string(name), version, append(n.lines[:0], line...)
	}
}

// precedes reports whether a tag is to be followed rather than the newest before it. Of equal
// versions, such as 1.2.0 and v1.2.0, the name decides: the order of refs must not.
func (n *newest) precedes(name string, version *semver.Version) bool {
	if n.version == nil {
		return true
	}
	order := version.Compare(n.version)
	return order > 0 || order == 0 && strings.Compare(name, n.tag) > 0
}

// take returns the lines of the newest tag, once.
func (n *newest) take() []byte {
	lines := n.lines
	n.lines = nil
	return lines
}

func (n *newest) found() (runnerapi.GitRef, error) {
	if n.tag == "" {
		return runnerapi.GitRef{}, failed(RefMissing,
			"push a tag such as v1.2.3, or correct ref.semver; a pre-release matches only a range that names one, such as >=1.2.0-0",
			"no tag matches ref.semver %q: the repository has %d tags, %d of which are versions", clip(n.pattern), n.tags, n.tags-n.others)
	}
	return runnerapi.GitRef{Tag: n.tag}, nil
}

// Found is where a ref led.
type Found struct {
	Commit string
	Tag    string // that leads to the commit; empty if the ref is none
}

func (at *located) found(commit string) Found { return Found{commit, at.tagName} }

// leads reports whether a tag leads to what was located.
func (at *located) leads(tag string) bool {
	if commit, annotated := at.refs.Peeled[tags+tag]; annotated {
		return commit == at.hash
	}
	hash, there := at.refs.References[tags+tag]
	return there && hash == at.hash
}
