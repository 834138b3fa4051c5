package store

import (
	"context"
	"slices"
	"time"
)

// Release is one that is offered to agents.
type Release struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	URL     string `json:"url"`
	// Agents are IDs; with Labels they say to whom it is offered. Both empty: to all.
	Agents    []string          `json:"agents,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	OfferedAt time.Time         `json:"offeredAt"`
	// ExpiresAt is the manifest's: from then on the release is not offered.
	ExpiresAt time.Time `json:"expiresAt"`
	// Manifest and Signature (one or several) are as they were published. Lists go without.
	Manifest  []byte `json:"-"`
	Signature []byte `json:"-"`
}

// IsFor reports whether it is offered to an agent: to one of those that are named, if any are,
// which has all labels, if there are any.
func (r *Release) IsFor(a Agent) bool {
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

const releaseColumns = `id, version, url, agents, labels, offered_at, expires_at`

func scanRelease(row scanner, r *Release) error {
	return row.Scan(&r.ID, &r.Version, &r.URL, document{&r.Agents}, document{&r.Labels}, moment{&r.OfferedAt}, moment{&r.ExpiresAt})
}

func scanWholeRelease(row scanner, r *Release) error {
	return row.Scan(&r.ID, &r.Version, &r.URL, document{&r.Agents}, document{&r.Labels}, moment{&r.OfferedAt}, moment{&r.ExpiresAt}, &r.Manifest, &r.Signature)
}

// releaseTable has the statements about offered releases.
type releaseTable struct{ table }

// InsertRelease adds an offer.
func (q releaseTable) InsertRelease(ctx context.Context, r Release) error {
	_, err := q.exec(ctx, `INSERT INTO releases (`+releaseColumns+`, manifest, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		r.ID, r.Version, r.URL, asJSON(r.Agents), asJSON(r.Labels), micros(r.OfferedAt), micros(r.ExpiresAt), string(r.Manifest), string(r.Signature))
	return err
}

// Releases lists the offers, the last one first, without manifest and signature.
func (q releaseTable) Releases(ctx context.Context) ([]Release, error) {
	return all(ctx, q.q, scanRelease, `SELECT `+releaseColumns+` FROM releases ORDER BY offered_at DESC, id`)
}

// Release finds an offer by its ID, whole.
func (q releaseTable) Release(ctx context.Context, id string) (Release, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+releaseColumns+`, manifest, signature FROM releases WHERE id = $1`, id), scanWholeRelease)
}

// DeleteRelease withdraws an offer.
func (q releaseTable) DeleteRelease(ctx context.Context, id string) error {
	return q.execOne(ctx, `DELETE FROM releases WHERE id = $1`, id)
}
