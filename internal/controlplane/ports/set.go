package ports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// maxSet bounds how many ports of a protocol an operator opens: each has a listener while it is in
// use.
const maxSet = 10000

// Open are the ports that the operator lets Apps have.
type Open struct{ TCP, UDP Set }

// Of returns the ports of a protocol of gatewaywire.
func (o Open) Of(protocol string) Set {
	if protocol == gatewaywire.UDP {
		return o.UDP
	}
	return o.TCP
}

// Any reports whether there are any.
func (o Open) Any() bool { return len(o.TCP)+len(o.UDP) > 0 }

// Set are ports of one protocol, in order. It is a pflag.Value.
type Set []int

// ParseSet reads ports and ranges, as 20000-20099,5432. An empty text is none.
func ParseSet(text string) (s Set, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		from, err := number(first)
		if err != nil {
			return nil, err
		}
		to := from
		if ranged {
			if to, err = number(last); err != nil {
				return nil, err
			}
		}
		if to < from {
			return nil, fmt.Errorf("%.40q ends before it begins; give it as %d-%d", part, to, from)
		}
		if to-from >= maxSet || len(s)+to-from+1 > maxSet {
			return nil, fmt.Errorf("%.40q is not a range of at most %d ports in all, such as 20000-20099", part, maxSet)
		}
		for n := from; n <= to; n++ {
			s = append(s, n)
		}
	}
	slices.Sort(s)
	return slices.Compact(s), nil
}

func number(text string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%.40q is not a port; give ports and ranges, such as 20000-20099,5432", text)
	}
	return int(n), nil
}

// Has reports whether a port is one of the set.
func (s Set) Has(port int) bool {
	_, found := slices.BinarySearch(s, port)
	return found
}

// String returns the set as ParseSet reads it.
func (s Set) String() string {
	var parts []string
	for i := 0; i < len(s); {
		last := i
		for last+1 < len(s) && s[last+1] == s[last]+1 {
			last++
		}
		part := strconv.Itoa(s[i])
		if last > i {
			part += "-" + strconv.Itoa(s[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ",")
}

// Set implements pflag.Value.
func (s *Set) Set(text string) (err error) {
	*s, err = ParseSet(text)
	return err
}

// Type implements pflag.Value.
func (s *Set) Type() string { return "ports" }
