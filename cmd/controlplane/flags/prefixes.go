package flags

import (
	"net/netip"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
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
		n, err := limit.ParseNetwork(part)
		if err != nil {
			return err
		}
		*p.list = append(*p.list, n)
	}
	return nil
}

// Type implements pflag.Value.
func (*prefixes) Type() string { return "networks" }
