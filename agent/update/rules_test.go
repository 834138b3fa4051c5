package update

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/updatewindow"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

// noon is that of a Saturday.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const sum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func manifestOf(version string) release.Manifest {
	return release.Manifest{
		Version: version, Commit: "abc", Images: []release.Image{{Name: agentImage, Digest: "sha256:" + sum}},
		Files: []release.File{{Name: "a", SHA256: sum, Kind: release.KindChart}},
	}
}

func offerOf(t *testing.T, version string, change ...func(*controlapi.Offer)) *controlapi.Offer {
	t.Helper()
	o := &controlapi.Offer{ID: "o-" + version, Version: version, URL: "https://downloads.example.com/" + version}
	o.Manifest, o.Signature = releasetest.Sign(t, manifestOf(version))
	for _, c := range change {
		c(o)
	}
	return o
}

// expiring signs the offer's release again, with that time.
func expiring(t *testing.T, at time.Time) func(*controlapi.Offer) {
	return func(o *controlapi.Offer) {
		t.Helper()
		m := manifestOf(o.Version)
		m.Expires = at
		o.Manifest, o.Signature = releasetest.Sign(t, m)
	}
}

func rulesOf(t *testing.T, version string, change ...func(*Rules)) Rules {
	t.Helper()
	r := Rules{Version: version, Trust: releasetest.Trust(t)}
	for _, c := range change {
		c(&r)
	}
	return r
}

func TestJudge(t *testing.T) {
	other := releasetest.TrustIn(t, 1, releasetest.OtherKey)
	two := releasetest.TrustIn(t, 2, releasetest.PublicKey, releasetest.SecondKey)
	windows, err := updatewindow.Parse("Sun 02:00-04:00 Europe/Berlin")
	require.NoError(t, err)
	failed := Record{State: controlapi.UpdateFailed, Offer: "o-v1.1.0", Reason: "it crashed"}
	for name, c := range map[string]struct {
		rules  Rules
		offer  *controlapi.Offer
		last   Record
		state  controlapi.UpdateState
		reason string
	}{
		"newer":      {rules: rulesOf(t, "v1.0.0"), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateUpdating},
		"prerelease": {rules: rulesOf(t, "v1.1.0-rc.1"), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateUpdating},
		"the same":   {rules: rulesOf(t, "v1.1.0"), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateDone},
		"older": {rules: rulesOf(t, "v1.10.0"), offer: offerOf(t, "v1.9.0"), state: controlapi.UpdateRefused,
			reason: "version: v1.9.0 is older than v1.10.0"},
		"wrong key": {rules: rulesOf(t, "v1.0.0", func(r *Rules) { r.Trust = other }), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateRefused,
			reason: "signature: "},
		"no key": {rules: rulesOf(t, "v1.0.0", func(r *Rules) { r.Trust = release.Trust{} }), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateRefused,
			reason: "signature: "},
		"one signature of two": {rules: rulesOf(t, "v1.0.0", func(r *Rules) { r.Trust = two }), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateRefused,
			reason: "1 of the 2 signatures that are needed"},
		"two signatures": {rules: rulesOf(t, "v1.0.0", func(r *Rules) { r.Trust = two }), state: controlapi.UpdateUpdating,
			offer: offerOf(t, "v1.1.0", func(o *controlapi.Offer) { o.Manifest, o.Signature = releasetest.SignBoth(t, manifestOf("v1.1.0")) })},
		"expired": {rules: rulesOf(t, "v1.0.0"), offer: offerOf(t, "v1.1.0", expiring(t, noon)), state: controlapi.UpdateRefused,
			reason: "expires: v1.1.0 expired at 2026-11-21T12:00:00Z (fix: "},
		"expires soon":      {rules: rulesOf(t, "v1.0.0"), offer: offerOf(t, "v1.1.0", expiring(t, noon.Add(time.Second))), state: controlapi.UpdateUpdating},
		"expired, and runs": {rules: rulesOf(t, "v1.1.0"), offer: offerOf(t, "v1.1.0", expiring(t, noon)), state: controlapi.UpdateDone},
		"tampered": {rules: rulesOf(t, "v1.0.0"), state: controlapi.UpdateRefused, reason: "signature: ",
			offer: offerOf(t, "v1.1.0", func(o *controlapi.Offer) {
				o.Manifest = []byte(strings.Replace(string(o.Manifest), sum, strings.Repeat("b", 64), 1))
			})},
		"too large": {rules: rulesOf(t, "v1.0.0"), state: controlapi.UpdateRefused, reason: "manifest: ",
			offer: offerOf(t, "v1.1.0", func(o *controlapi.Offer) { o.Manifest = make([]byte, release.MaxManifest+1) })},
		"another label on it": {rules: rulesOf(t, "v1.0.0"), offer: offerOf(t, "v1.1.0", func(o *controlapi.Offer) { o.Version = "v1.2.0" }),
			state: controlapi.UpdateRefused, reason: "version: v1.2.0 is offered, v1.1.0 is what was signed"},
		"between releases": {rules: rulesOf(t, "v1.0.0-7-g0a1b2c3"), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateRefused,
			reason: "which is not a release"},
		"no release": {rules: rulesOf(t, "dev"), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateRefused, reason: "which is not a release"},
		"failed":     {rules: rulesOf(t, "v1.0.0"), offer: offerOf(t, "v1.1.0"), last: failed, state: controlapi.UpdateFailed, reason: "it crashed"},
		"offered again": {rules: rulesOf(t, "v1.0.0"), last: failed, state: controlapi.UpdateUpdating,
			offer: offerOf(t, "v1.1.0", func(o *controlapi.Offer) { o.ID = "again" })},
		"window": {rules: rulesOf(t, "v1.0.0", func(r *Rules) { r.Windows = windows }), offer: offerOf(t, "v1.1.0"), state: controlapi.UpdateWaiting,
			reason: "2026-11-22T02:00:00+01:00"},
		"older, outside of the window": {rules: rulesOf(t, "v1.2.0", func(r *Rules) { r.Windows = windows }), offer: offerOf(t, "v1.1.0"),
			state: controlapi.UpdateRefused, reason: "version: "},
	} {
		t.Run(name, func(t *testing.T) {
			state, reason, _ := c.rules.judge(c.offer, c.last, noon)
			assert.Equal(t, c.state, state, reason)
			assert.Contains(t, reason, c.reason)
		})
	}
}

func FuzzJudge(f *testing.F) {
	f.Add([]byte(`{"version":"v1.1.0"}`), []byte("untrusted comment:"), "v1.1.0", "v1.0.0")
	f.Fuzz(func(t *testing.T, manifest, signature []byte, offered, runs string) {
		r := Rules{Version: runs, Trust: releasetest.Trust(t)}
		offer := &controlapi.Offer{ID: "o", Version: offered, Manifest: manifest, Signature: signature}
		if state, reason, _ := r.judge(offer, Record{}, noon); state != controlapi.UpdateRefused {
			t.Fatalf("%s: %s", state, reason)
		}
	})
}
