package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// offerFor returns what is offered to an agent: of all offers that are for it the highest version,
// so that a release that is tried on some agents first is not taken back by an older one for all.
// Expired releases are left out. The content is left out when the agent has it.
func offerFor(ctx context.Context, s *store.Store, agentID, has string, now time.Time) (*controlapi.Offer, error) {
	releases, err := s.Releases(ctx)
	if err != nil || len(releases) == 0 {
		return nil, err
	}
	agent, err := s.Agent(ctx, agentID)
	if err != nil {
		return nil, err
	}
	best := -1
	for i, r := range releases { // the last offer first
		if isFor(r, agent) && now.Before(r.ExpiresAt) && (best < 0 || semver.Compare(r.Version, releases[best].Version) > 0) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	chosen := releases[best]
	if chosen.ID == has {
		return &controlapi.Offer{ID: chosen.ID, Version: chosen.Version}, nil
	}
	chosen, err = s.Release(ctx, chosen.ID)
	if errors.Is(err, store.ErrNotFound) { // withdrawn this moment
		return nil, nil
	}
	return &controlapi.Offer{
		ID: chosen.ID, Version: chosen.Version, Manifest: chosen.Manifest, Signature: chosen.Signature, URL: chosen.URL,
	}, err
}

// isFor reports whether a release is offered to an agent: to one of those that are named, if any
// are, which has all labels, if there are any.
func isFor(r store.Release, a store.Agent) bool {
	if len(r.Agents) > 0 && !slices.Contains(r.Agents, a.ID) {
		return false
	}
	for k, v := range r.Labels {
		if has, ok := a.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// announcedUpdate returns what Runners get to know of an agent's update.
func announcedUpdate(u *controlapi.Update) *announce.AgentUpdate {
	if u == nil {
		return nil
	}
	return &announce.AgentUpdate{State: string(u.State), From: u.From, To: u.To, Reason: printable.Text(u.Reason)}
}

// valueOf makes pointers comparable.
func valueOf(u *announce.AgentUpdate) announce.AgentUpdate {
	if u == nil {
		return announce.AgentUpdate{}
	}
	return *u
}

// ReleaseOptions describe an offer and its recipients.
type ReleaseOptions struct {
	Manifest, Signature []byte
	// Trust is the operator's: what an agent would refuse is not offered.
	Trust release.Trust
	// URL is where agents find the files: https, without a file's name.
	URL string
	// Agents are names or IDs. With no Agents and no Labels it is offered to all.
	Agents []string
	Labels map[string]string
}

// OfferRelease offers a release to agents: each gets it with its next heartbeat, if its owner has
// enabled self-update.
func (a *Admin) OfferRelease(ctx context.Context, opts ReleaseOptions) (store.Release, error) {
	manifest, err := opts.Trust.Open(opts.Manifest, opts.Signature)
	if err != nil {
		return store.Release{}, err
	}
	if err := manifest.CheckExpiry(a.now()); err != nil {
		return store.Release{}, err
	}
	if err := checkReleaseURL(opts.URL); err != nil {
		return store.Release{}, err
	}
	if err := checkLabels(opts.Labels); err != nil {
		return store.Release{}, err
	}
	id, err := newID()
	if err != nil {
		return store.Release{}, err
	}
	offer := store.Release{
		ID: id, Version: manifest.Version, URL: strings.TrimRight(opts.URL, "/"), Labels: opts.Labels, OfferedAt: a.now(), ExpiresAt: manifest.Expires,
		Manifest: opts.Manifest, Signature: opts.Signature,
	}
	for _, nameOrID := range opts.Agents {
		agent, err := findAgent(ctx, a.store, nameOrID)
		if err != nil {
			return store.Release{}, err
		}
		offer.Agents = append(offer.Agents, agent.ID)
	}
	return offer, a.store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.InsertRelease(ctx, offer); err != nil {
			return err
		}
		if len(offer.Agents) == 0 {
			return tx.AddNews(ctx, store.EveryAgent)
		}
		for _, id := range offer.Agents {
			if err := tx.AddNews(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkReleaseURL refuses what agents would refuse.
func checkReleaseURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || len(text) > 1024:
		return fmt.Errorf("--url: %q is no https URL; write it as https://HOST/PATH, where the release's files are", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("--url: has a user, a query or a fragment; write it as https://HOST/PATH: each agent gets to see it")
	}
	return nil
}

// Releases lists the offers, the last one first.
func (a *Admin) Releases(ctx context.Context) ([]store.Release, error) { return a.store.Releases(ctx) }

// WithdrawRelease withdraws an offer, named by its ID, or all offers of a version. Agents that have
// taken it keep their version.
func (a *Admin) WithdrawRelease(ctx context.Context, idOrVersion string) (withdrawn []store.Release, err error) {
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		releases, err := tx.Releases(ctx)
		if err != nil {
			return err
		}
		for _, r := range releases {
			if r.ID != idOrVersion && r.Version != idOrVersion {
				continue
			}
			if err := tx.DeleteRelease(ctx, r.ID); err != nil {
				return err
			}
			withdrawn = append(withdrawn, r)
		}
		if len(withdrawn) == 0 {
			return fmt.Errorf("no release with the ID or version %q is offered; `pipeops-controlplane release list` lists them", idOrVersion)
		}
		return nil
	})
	return withdrawn, err
}
