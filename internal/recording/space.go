package recording

// space is what recordings take, by the digest of their Runner.
type space struct {
	runner string // the one that wants to record
	bytes  map[string]int64
	parts  map[string]int
}

func newSpace(runner string) *space {
	return &space{runner: runner, bytes: map[string]int64{}, parts: map[string]int{}}
}

func (s *space) add(runner string, bytes int64, parts int) {
	s.bytes[runner] += bytes
	s.parts[runner] += parts
}

// fits reports whether the Runner is within its share: it may take no more than what it leaves
// free. So there is always room for a Runner that has no recordings.
func (s *space) fits() bool {
	return sum(s.bytes)+s.bytes[s.runner] <= MaxTotal && sum(s.parts)+s.parts[s.runner] <= MaxTotalParts
}

// largest returns the Runner that takes the most, of those with recordings that may be removed.
// None takes less than the Runner that wants to record. What counts is the limit that is exceeded.
func (s *space) largest(removable map[string][]Entry) (runner string, found bool) {
	takes := func(of string) int64 { return s.bytes[of] }
	if sum(s.bytes)+s.bytes[s.runner] <= MaxTotal {
		takes = func(of string) int64 { return int64(s.parts[of]) }
	}
	for of, entries := range removable {
		if len(entries) > 0 && takes(of) >= takes(s.runner) && (!found || takes(of) > takes(runner)) {
			runner, found = of, true
		}
	}
	return runner, found
}

func sum[N int | int64](amounts map[string]N) (all N) {
	for _, n := range amounts {
		all += n
	}
	return all
}
