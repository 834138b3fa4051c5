package administration

import (
	"context"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

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

// Offer offers a release to agents: each gets it with its next heartbeat, if its owner has
// enabled self-update.
func (a *Releases) Offer(ctx context.Context, opts ReleaseOptions) (store.Release, error) {
	manifest, err := opts.Trust.Open(opts.Manifest, opts.Signature)
	if err != nil {
		return store.Release{}, asInvalid(err)
	}
	if err := manifest.CheckExpiry(a.now()); err != nil {
		return store.Release{}, asInvalid(err)
	}
	if err := checkReleaseURL(opts.URL); err != nil {
		return store.Release{}, err
	}
	if err := enrolment.CheckLabels(opts.Labels); err != nil {
		return store.Release{}, err
	}
	offer := store.Release{
		ID: store.NewID(), Version: manifest.Version, URL: strings.TrimRight(opts.URL, "/"), Labels: opts.Labels, OfferedAt: a.now(), ExpiresAt: manifest.Expires,
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
			return tx.RequestRefresh(ctx, store.EveryAgent)
		}
		for _, id := range offer.Agents {
			if err := tx.RequestRefresh(ctx, id); err != nil {
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
		return invalid("write it as https://HOST/PATH, where the release's files are", "--url: %q is not an https URL", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return invalid("write it as https://HOST/PATH: each agent gets to see it", "--url: has a user, a query or a fragment")
	}
	return nil
}

// List lists the offers with how far the agents are, the last offer first.
func (a *Releases) List(ctx context.Context) ([]Offered, error) {
	releases, err := a.store.Releases(ctx)
	if err != nil {
		return nil, err
	}
	return a.withProgress(ctx, releases)
}

// Withdraw withdraws an offer, named by its ID, or all offers of a version. Agents that have
// taken it keep their version.
func (a *Releases) Withdraw(ctx context.Context, idOrVersion string) (withdrawn []store.Release, err error) {
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
			return missing("`pipeops-controlplane offer list` lists them", "no release with the ID or version %q is offered", idOrVersion)
		}
		return nil
	})
	return withdrawn, err
}
