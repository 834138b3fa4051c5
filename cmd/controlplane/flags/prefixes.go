package flags

import (
	"fmt"
	"net/netip"
	"strings"
)

// prefixes is a flag for networks, with commas between. Each use adds to those before.
type prefixes struct{ list *[]netip.Prefix }

// String implements pflag.Value.
func (p *prefixes) String() string {
	if p.list == nil {
		return ""
	}
	texts := make([]string, len(*p.list))
	for i, n := range *p.list {
		texts[i] = n.String()
	}
	return strings.Join(texts, ",")
}

// Set implements pflag.Value.
func (p *prefixes) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is not a network; for example 10.20.0.0/16", part)
		}
		*p.list = append(*p.list, n.Masked())
	}
	return nil
}

// Type implements pflag.Value.
func (*prefixes) Type() string { return "networks" }
