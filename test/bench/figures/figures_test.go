package figures

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a part with a bound of each kind, and a figure without one.
var sample = &Part{Name: "sample", Command: "make sample", Page: "sample.md", Definitions: []Definition{
	{"slow", "one client's p50", "ms", atMost(1000)},
	{"fast", "down, far", "MB/s", atLeast(180)},
	{"free", "lines", "", nil},
}}

// run is a run of the sample that noted all that a page needs.
func run(slow, fast float64) *Set {
	s := New(sample)
	s.Commit, s.Date, s.Machine = "abc", "2026-11-23T14:50:09Z", Machine{CPUs: 2}
	s.Add("free", 4819903)
	s.Add("fast", fast)
	s.Add("slow", slow)
	return s
}

func TestABoundIsKeptUpToItself(t *testing.T) {
	for measured, holds := range map[float64]bool{999: true, 1000: true, 1000.001: false, math.Inf(1): false} {
		assert.Equal(t, holds, atMost(1000).holds(measured), "%v", measured)
	}
	for measured, holds := range map[float64]bool{179.999: false, 180: true, 181: true, math.Inf(-1): false} {
		assert.Equal(t, holds, atLeast(180).holds(measured), "%v", measured)
	}
	assert.False(t, atMost(1).holds(math.NaN()))
	assert.False(t, atLeast(1).holds(math.NaN()))
}

func TestAFigureIsShort(t *testing.T) {
	for text, f := range map[string]Figure{
		"4 819 903":  {Measured: 4819903},
		"-1 016 ms":  {Measured: -1015.69, Unit: "ms"},
		"0":          {},
		"10.9 ms":    {Measured: 10.9003, Unit: "ms"},
		"0.72":       {Measured: 0.7207},
		"0.0041 %":   {Measured: 0.004114, Unit: "%"},
		"3 301/s":    {Measured: 3301.03, Unit: "/s"},
		"1.40":       {Measured: 1.4049, Bound: atMost(1.45)},
		"1.004":      {Measured: 1.0041, Bound: atMost(1)},
		"0.6497":     {Measured: 0.6497, Bound: atLeast(0.65)},
		"1 000.4 ms": {Measured: 1000.4, Unit: "ms", Bound: atMost(1000)},
	} {
		assert.Equal(t, text, f.text())
	}
}

func TestEachBrokenBoundHasALine(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(1000, 180).Report(&out))
	assert.NotContains(t, out.String(), "BROKEN")
	assert.Regexp(t, `one client's p50 +1 000 ms +≤ 1 000 ms +holds\n`, out.String())

	out.Reset()
	require.ErrorIs(t, run(1016, 72).Report(&out), ErrBroken)
	assert.Regexp(t, `one client's p50 +1 016 ms +≤ 1 000 ms +BROKEN\n`, out.String())
	assert.Contains(t, out.String(), "BROKEN: one client's p50 is 1 016 ms, and must be ≤ 1 000 ms\n")
	assert.Contains(t, out.String(), "BROKEN: down, far is 72 MB/s, and must be ≥ 180 MB/s\n")
}

func TestSavedFiguresAreRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	s := run(1, 200)
	s.Tables = []Table{{Columns: []string{"way"}, Rows: [][]string{{"direct"}}}}
	require.NoError(t, s.Save(dir))
	back, err := Read(sample, dir)
	require.NoError(t, err)
	assert.Equal(t, s, back)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apps.json"), []byte(`{"part": "streams"}`), 0o600))
	_, err = Read(Apps, dir)
	assert.ErrorContains(t, err, `of part "streams"`)
}

func TestWhatIsNotForAPage(t *testing.T) {
	require.NoError(t, run(1016, 200).Check(), "a broken bound is shown")
	for name, test := range map[string]struct {
		spoil func(*Set)
		says  string
	}{
		"a holds that is not so": {func(s *Set) { *s.figure("slow").Holds = true }, "figure slow has a bound or a holds"},
		"no holds":               {func(s *Set) { s.figure("slow").Holds = nil }, "figure slow has a bound or a holds"},
		"another bound":          {func(s *Set) { *s.figure("fast").Bound.AtLeast = 1 }, "figure fast has a bound or a holds"},
		"a bound of its own":     {func(s *Set) { s.figure("free").judge(atMost(1)) }, "figure free has a bound or a holds"},
		"measured otherwise":     {func(s *Set) { s.figure("slow").Measured = 7 }, "figure slow has a bound or a holds"},
		"not measured":           {func(s *Set) { s.Figures = s.Figures[1:] }, "figure slow has a bound and was not measured"},
		"unknown":                {func(s *Set) { s.Figures[0].ID = "other" }, "figure other is not defined"},
		"of no commit":           {func(s *Set) { s.Commit = "" }, "missing"},
		"of no date":             {func(s *Set) { s.Date = "" }, "missing"},
		"of no machine":          {func(s *Set) { s.Machine = Machine{} }, "missing"},
		"short":                  {func(s *Set) { s.Short = true }, "short run"},
	} {
		s := run(1016, 200)
		for i := range s.Figures { // a bound is shared with its definition
			if b := s.Figures[i].Bound; b != nil && b.AtLeast != nil {
				s.Figures[i].Bound = atLeast(*b.AtLeast)
			}
		}
		test.spoil(s)
		assert.ErrorContains(t, s.Check(), test.says, name)
	}
}

func TestStoredFiguresAreJudgedAgain(t *testing.T) {
	s := run(1016, 200)
	s.figure("slow").judge(atMost(2000))
	require.Error(t, s.Check())
	s.Judge()
	require.NoError(t, s.Check())
	assert.False(t, *s.figure("slow").Holds)
}

const page = "# Sample\n<!-- figures: sample (made by make sample; do not edit) -->\nold\n<!-- end -->\nrest\n<!-- end -->\n"

func TestTheTableOfAPage(t *testing.T) {
	s := run(1016, 200)
	s.Seconds, s.Sizes = 610, map[string]string{"rounds": "40", "bulk": "300ms"}
	s.Tables = []Table{{Columns: []string{"way", "MiB"}, Rows: [][]string{{"direct", "7 → 8"}}}}
	made, err := s.Put([]byte(page))
	require.NoError(t, err)
	assert.Equal(t, `# Sample
<!-- figures: sample (made by make sample; do not edit) -->

- commit: `+"`abc`"+`
- date: 2026-11-23, for 10m10s
- machine: 2 CPUs, memory not noted, system not noted, Go not noted
- sizes: bulk 300ms, rounds 40
- bounds that hold: 1 of 2
- made from [bench/sample.json](bench/sample.json)

| figure | measured | bound | |
|---|---|---|---|
| one client's p50 | 1 016 ms | ≤ 1 000 ms | **broken** |
| down, far | 200 MB/s | ≥ 180 MB/s | holds |
| lines | 4 819 903 | | |

| way | MiB |
|---|---|
| direct | 7 → 8 |

<!-- end -->
rest
<!-- end -->
`, string(made))
	again, err := s.Put(made)
	require.NoError(t, err)
	assert.Equal(t, string(made), string(again))
}

func TestWhatIsNotKnownIsMarked(t *testing.T) {
	s := run(1, 200)
	s.Figures = s.Figures[:2]
	s.Commit, s.Recorded, s.Date = "", "def", "2026-11-23"
	assert.Contains(t, s.block(), "commit: the run did not note it; `def` recorded these figures\n- date: 2026-11-23\n")
	assert.Contains(t, s.block(), "| lines | not noted | | |\n")
	s.Commit, s.Changed = "abc", true
	assert.Contains(t, s.block(), "commit: `abc`, with changes that were not committed\n")
}

func TestAPageWithoutItsMarks(t *testing.T) {
	mark, _, _ := strings.Cut(page, "old")
	for name, text := range map[string]string{
		"none":        "# Sample\n",
		"twice":       page + page,
		"without end": mark + "old\n",
		"end of another": mark + "<!-- figures: other (made by make other; do not edit) -->\n" +
			"<!-- end -->\n",
	} {
		_, err := run(1, 200).Put([]byte(text))
		assert.ErrorContains(t, err, "docs/sample.md", name)
	}
}

func TestLinesOfTextAreFolded(t *testing.T) {
	for line := range strings.Lines(folded("- sizes: " + strings.Repeat("rounds 40, ", 40))) {
		assert.LessOrEqual(t, len(line), width+1)
	}
}

// TestARunIsPublished runs in this repository: its commit is noted.
func TestARunIsPublished(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sample.md")
	require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	var o Output
	o.Flags(flags)
	rounds := flags.Int("rounds", 1, "")
	flags.Int("clients", 0, "")
	flags.Duration("far", 40*time.Millisecond, "")
	require.NoError(t, flags.Parse([]string{"-out", dir, "-page", file}))

	r, err := Begin(t.Context(), sample, o, false)
	require.NoError(t, err)
	*rounds = 3
	r.Machine.Kubernetes = "v1"
	r.Add("slow", 1)
	r.Add("fast", math.NaN())
	require.ErrorContains(t, r.Publish(flags, nil), "figure fast has a bound and was not measured")
	untouched, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, page, string(untouched))

	r.Add("fast", 200)
	require.NoError(t, r.Publish(flags, []int{1}))
	s, err := Read(sample, dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"rounds": "3", "far": "40ms"}, s.Sizes)
	assert.Regexp(t, `^[0-9a-f]{12,}$`, s.Commit)
	assert.Equal(t, "v1", s.Machine.Kubernetes)
	assert.NotZero(t, s.Machine.CPUs)
	assert.JSONEq(t, "[1]", string(s.Details))
	made, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(made), "| one client's p50 | 1 ms | ≤ 1 000 ms | holds |\n")
}

func TestWhereARunGoes(t *testing.T) {
	_, err := Begin(t.Context(), sample, Output{Page: "x.md"}, false)
	require.ErrorContains(t, err, "-page needs -out")
	_, err = Begin(t.Context(), sample, Output{Dir: "x", Page: "x.md"}, true)
	require.ErrorContains(t, err, "short run")
	r, err := Begin(t.Context(), sample, Output{}, true)
	require.NoError(t, err)
	require.NoError(t, r.Publish(nil, nil), "nothing is to be written")
}

func TestIDsAreUnique(t *testing.T) {
	for _, p := range Parts() {
		seen := map[string]bool{}
		for _, d := range p.Definitions {
			assert.False(t, seen[d.ID], d.ID)
			seen[d.ID] = true
		}
	}
}
