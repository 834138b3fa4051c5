package update

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/agent/updatewindow"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// Rules are the cluster owner's rules, and those that protect the cluster owner: the agent takes
// only offers that they allow.
type Rules struct {
	// Version is the running version.
	Version string
	Trust   release.Trust
	Windows updatewindow.Windows
}

// RefusedError is returned for an offer that a rule forbids. Its text names the rule.
type RefusedError struct{ reason string }

func (e *RefusedError) Error() string { return e.reason }

func refuse(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// betweenReleases matches git describe's output for a commit that is not a release: to semantic
// versioning it is older than the release that it follows.
var betweenReleases = regexp.MustCompile(`-\d+-g[0-9a-f]{4,40}(-dirty)?$|-dirty$`)

// open verifies an offer and returns the offered manifest, or a RefusedError.
func (r Rules) open(offer *controlapi.Offer) (*release.Manifest, error) {
	m, err := r.Trust.Open(offer.Manifest, offer.Signature)
	switch {
	case errors.Is(err, release.ErrUntrusted):
		return nil, refuse("signature: %v", err)
	case err != nil:
		return nil, refuse("manifest: %v", err)
	case m.Version != offer.Version:
		return nil, refuse("version: %s is offered, %s is what was signed", offer.Version, m.Version)
	case !semver.IsValid(r.Version) || betweenReleases.MatchString(r.Version):
		return nil, refuse("version: this agent is %s, which is not a release, so that nothing can be said to be newer", r.Version)
	}
	return m, nil
}

// upward refuses a downgrade, which would bring back every bug fixed since, with a genuine
// signature.
func (r Rules) upward(to string) error {
	if semver.Compare(to, r.Version) < 0 {
		return refuse("version: %s is older than %s, which runs; an agent does not go back by itself", to, r.Version)
	}
	return nil
}

// judge decides about an offer: Done, Failed, Refused or Waiting with a reason, or Updating if it
// is to be tried now.
func (r Rules) judge(offer *controlapi.Offer, last Record, now time.Time) (controlapi.UpdateState, string, *release.Manifest) {
	m, err := r.open(offer)
	if err == nil {
		err = r.upward(m.Version)
	}
	switch {
	case err != nil:
		return controlapi.UpdateRefused, err.Error(), nil
	case semver.Compare(m.Version, r.Version) == 0:
		return controlapi.UpdateDone, "", m
	case m.CheckExpiry(now) != nil:
		return controlapi.UpdateRefused, "expires: " + m.CheckExpiry(now).Error(), nil
	case last.State == controlapi.UpdateFailed && last.Offer == offer.ID:
		return controlapi.UpdateFailed, last.Reason, m
	case !r.Windows.Contains(now):
		return controlapi.UpdateWaiting, "for the window that opens at " + r.Windows.Next(now).Format(time.RFC3339), m
	}
	return controlapi.UpdateUpdating, "", m
}
