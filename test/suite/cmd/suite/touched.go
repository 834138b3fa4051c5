package main

import (
	"fmt"
	"io"
	"path"
	"slices"
	"time"
)

// touchedParts returns the parts whose inputs are among changed files, as far as they fit into a
// limit.
func touchedParts(out io.Writer, m *module, files []string, limit time.Duration) (chosen []part) {
	fmt.Fprintf(out, "== parts of the release suite that the change touched (%d files)\n", len(files))
	lanes := map[string]time.Duration{} // which run side by side
	for _, p := range parts {
		switch will := lanes[p.lane] + p.estimate; {
		case p.nightly:
			fmt.Fprintf(out, "%-10s for the night: make test-part PART=%s\n", p.name, p.name)
		case !m.touches(p, files):
			fmt.Fprintf(out, "%-10s not touched\n", p.name)
		case will > limit:
			fmt.Fprintf(out, "%-10s LEFT OUT: about %s with the parts before, and %s are left: make test-part PART=%s\n", p.name, will, limit, p.name)
		default:
			fmt.Fprint(out, list([]part{p})[2:])
			lanes[p.lane], chosen = will, append(chosen, p)
		}
	}
	return chosen
}

// touches reports whether one of the files is an input of a part: of its packages, or of what these
// import, or among the files that its tests read. A file in a folder that is not a package, such as
// testdata, belongs to the nearest package above it.
func (m *module) touches(p part, files []string) bool {
	var pkgs []string
	for _, j := range p.jobs(m) {
		pkgs = append(pkgs, j.Packages...)
	}
	for _, input := range p.inputs {
		pkgs = append(pkgs, modulePath+"/"+input)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		dir := path.Dir(file)
		for m.deps[modulePath+"/"+dir] == nil && dir != "." {
			dir = path.Dir(dir)
		}
		return isBelow(file, slices.Concat(p.inputs, []string{"go.mod", "go.sum"})...) ||
			slices.ContainsFunc(pkgs, func(pkg string) bool { return slices.Contains(m.deps[pkg], modulePath+"/"+dir) })
	})
}
