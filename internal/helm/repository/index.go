package repository

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxEntries bounds the part of an index about one chart, in bytes.
const maxEntries = 4 << 20

// ofIndex are the limits of that part: charts that are years old have thousands of versions.
var ofIndex = decode.Limits{Bytes: maxEntries, Values: 300_000, Aliases: 20_000, Expanded: maxEntries, Depth: 20}

// entry is a version of a chart in a repository's index.
type entry struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
}

// find returns the location of a chart from its repository's index.
func (f *Fetcher) find(ctx context.Context, repository *url.URL, source runnerapi.ChartSource, l *Login) (*url.URL, error) {
	body, err := f.get(ctx, repository.JoinPath("index.yaml"), l)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	entries, err := entriesOf(body, source.Name)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, problem.Errorf(problem.Invalid, "see which there are: helm search repo", "the repository has no chart %s", source.Name).WithField("chart.name")
	}
	best, err := newest(entries, source)
	if err != nil {
		return nil, err
	}
	if len(best.URLs) == 0 {
		return nil, problem.Errorf(problem.Invalid, "ask the owner of the repository to fix its index", "the repository does not say where %s %s is", source.Name, best.Version).WithField("chart")
	}
	at, err := repository.Parse(best.URLs[0])
	if err != nil || climbs(best.URLs[0]) {
		return nil, problem.Errorf(problem.Invalid, "ask the owner of the repository to fix its index", "the repository's URL of %s %s is none", source.Name, best.Version).WithField("chart")
	}
	return at, nil
}

// climbs reports whether a URL leads upwards, as written or to a server that decodes %2F: the login
// is for what is below the repository.
func climbs(text string) bool {
	u, err := url.Parse(text)
	return err != nil || strings.Contains("/"+strings.ReplaceAll(u.Path, `\`, "/")+"/", "/../")
}

// newest returns the highest version that the spec accepts.
func newest(entries []entry, source runnerapi.ChartSource) (entry, error) {
	wanted := cmp.Or(source.Version, "*")
	for _, e := range entries { // exactly this version, in any form
		if e.Version == source.Version {
			return e, nil
		}
	}
	within, err := semver.NewConstraint(wanted)
	if err != nil {
		return entry{}, problem.Errorf(problem.Invalid, "give a version such as 1.4.2, or a range such as ^1.4", "%q is not a version", wanted).WithField("chart.version")
	}
	var best entry
	var high *semver.Version
	for _, e := range entries {
		if v, err := semver.NewVersion(e.Version); err == nil && within.Check(v) && (high == nil || v.GreaterThan(high)) {
			best, high = e, v
		}
	}
	if high == nil {
		return entry{}, problem.Errorf(problem.Invalid, "see which versions there are: helm search repo --versions",
			"the repository has no version %s of chart %s", wanted, source.Name).WithField("chart.version")
	}
	return best, nil
}

// entriesOf reads the part of an index about one chart. Indexes have tens of megabytes, and ten
// times as much as objects. So it reads only that chart's lines, in the form that the helm program
// and all repositories write. It accepts another form while the index is small.
func entriesOf(index io.Reader, name string) ([]entry, error) {
	s := sectionScanner{name: name}
	limited := &io.LimitedReader{R: index, N: maxIndex + 1}
	lines := bufio.NewReaderSize(limited, 64<<10)
	var small bytes.Buffer
	for {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !errors.Is(err, io.EOF) && !long {
			return nil, problem.Errorf(problem.Invalid, "try again", "the repository's index breaks off: %v", err).WithField("chart.repository")
		}
		if small.Len() <= maxEntries {
			small.Write(line)
		}
		if !s.take(line) {
			return nil, tooLarge("what the repository says of this chart", maxEntries)
		}
		if err == io.EOF {
			break
		}
	}
	if limited.N == 0 {
		return nil, tooLarge("the repository's index", maxIndex)
	}
	return s.entries(small.Bytes())
}

// sectionScanner extracts a chart's lines from an index in block style.
type sectionScanner struct {
	name    string
	within  bool // below entries:
	indent  int  // of the charts' names; 0 if unknown
	ours    bool
	block   bool
	partial bool // in the middle of a long line
	section bytes.Buffer
}

func (s *sectionScanner) take(line []byte) bool {
	if !s.partial {
		s.begin(line)
	}
	s.partial = !bytes.HasSuffix(line, []byte("\n"))
	if s.ours {
		s.section.Write(line)
	}
	return s.section.Len() <= maxEntries
}

// begin examines the beginning of a line.
func (s *sectionScanner) begin(line []byte) {
	text := strings.TrimRight(string(line[:min(len(line), 512)]), "\r\n ")
	bare := strings.TrimLeft(text, " ")
	indent := len(text) - len(bare)
	switch {
	case bare == "" || bare[0] == '#':
	case indent == 0 && bare[0] != '-':
		s.within, s.ours = text == "entries:", false
		s.block = s.block || s.within
	case s.within && s.indent == 0 && bare[0] != '-':
		s.indent = indent
		s.ours = s.isName(bare)
	case s.within && indent == s.indent && bare[0] != '-':
		s.ours = s.isName(bare)
	}
}

func (s *sectionScanner) isName(text string) bool {
	return text == s.name+":" || text == `"`+s.name+`":` || text == `'`+s.name+`':`
}

func (s *sectionScanner) entries(whole []byte) ([]entry, error) {
	bad := func(err error) error {
		return problem.Errorf(problem.Invalid, "check the URL: it is the one that helm repo add takes", "this is not an index of a chart repository: %v", err).WithField("chart.repository")
	}
	if s.block {
		found := map[string][]entry{}
		if err := ofIndex.LooseYAML(s.section.Bytes(), &found); err != nil {
			return nil, bad(err)
		}
		return found[s.name], nil
	}
	if len(whole) > maxEntries {
		return nil, tooLarge("the repository's index, which is not in the form that helm repo index writes,", maxEntries)
	}
	var all struct {
		Entries map[string][]entry `json:"entries"`
	}
	if err := ofIndex.LooseYAML(whole, &all); err != nil {
		return nil, bad(err)
	}
	if all.Entries == nil {
		return nil, bad(fmt.Errorf("it has no entries"))
	}
	return all.Entries[s.name], nil
}
