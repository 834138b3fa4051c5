package runnerapi

import (
	"fmt"
	"strings"
	"time"
)

// maxPromotionAfter bounds how long a commit waits.
const maxPromotionAfter = 7 * 24 * time.Hour

// SourcePromotion has a source follow the commit that another source has applied, once that is
// healthy.
type SourcePromotion struct {
	From  string `json:"from" minLength:"1" maxLength:"117" pattern:"^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"The other source: NAME in the same namespace, or NAMESPACE/NAME. It follows the same url, and the Runner that puts this source may read it (get-source)." example:"web-staging"`
	After string `json:"after,omitempty" maxLength:"16" pattern:"^([0-9]+(s|m|h))+$" doc:"How long the other source is Ready with the commit, without a break, before this one follows: up to 168h; at once when empty." example:"30m"`
	// Approval is beside After: both have to be met.
	Approval bool `json:"approval,omitempty" doc:"A commit waits besides until a Runner approves it (approve-promotion)."`
}

// SourcePromotionStatus is which commit was promoted, and which one is to be.
type SourcePromotionStatus struct {
	From       string `json:"from" doc:"The source that commits come from, as NAMESPACE/NAME."`
	Commit     string `json:"commit,omitempty" doc:"The commit that was promoted last: what this source follows. Absent before the first."`
	Tag        string `json:"tag,omitempty" doc:"The tag that led the other source to it."`
	PromotedAt string `json:"promotedAt,omitempty" doc:"When it was promoted (RFC 3339)."`
	Candidate  string `json:"candidate,omitempty" doc:"The commit that the other source has applied, and that waits."`
	ReadySince string `json:"readySince,omitempty" doc:"Since when the other source has been Ready with the candidate (RFC 3339); absent while it is not."`
	DueAt      string `json:"dueAt,omitempty" doc:"When the candidate is promoted if the other source stays Ready, and if it is approved where it has to be (RFC 3339)."`
	Approved   bool   `json:"approved,omitempty" doc:"A Runner has approved the candidate."`
	Message    string `json:"message,omitempty" doc:"What is awaited; absent if nothing is."`
}

// CommitApproval approves one commit: a preview of a fork's, or a promotion.
type CommitApproval struct {
	Commit string `json:"commit" minLength:"40" maxLength:"40" pattern:"^[0-9a-f]{40}$" doc:"The commit that was looked at: another one needs another approval."`
}

// Source returns the other source of one in this namespace.
func (p SourcePromotion) Source(namespace string) Key {
	if ns, name, other := strings.Cut(p.From, "/"); other {
		return Key{Namespace: ns, Name: name}
	}
	return Key{Namespace: namespace, Name: p.From}
}

// Wait returns how long a commit waits.
func (p SourcePromotion) Wait() (time.Duration, error) {
	if p.After == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.After)
	if err != nil || d < 0 || d > maxPromotionAfter {
		return 0, fmt.Errorf("has to be between 0s and %dh", int(maxPromotionAfter.Hours()))
	}
	return d, nil
}

func (s SourceSpec) validatePromotion(v *validation, name string) {
	p := s.Promote
	if p == nil {
		return
	}
	if s.Ref != (GitRef{}) {
		v.add("promote", "is instead of ref: a promoted source follows what another one has applied")
	}
	switch key := p.Source("any"); {
	case p.From == "":
		v.add("promote.from", "is needed: the source that commits come from")
	case !ValidSource(key):
		v.add("promote.from", "has to be NAME or NAMESPACE/NAME of a source")
	case p.From == name:
		v.add("promote.from", "is this source itself")
	}
	if _, err := p.Wait(); err != nil {
		v.add("promote.after", "%v", err)
	}
}
