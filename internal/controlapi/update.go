package controlapi

import (
	"strings"
	"unicode/utf8"
)

// UpdateState is how far an agent is with an offered release.
type UpdateState string

// The states of an agent's update of itself.
const (
	UpdateIdle     UpdateState = "idle"     // turned on; nothing is offered
	UpdateWaiting  UpdateState = "waiting"  // taken; the customer's window is closed, or the download is tried again
	UpdateUpdating UpdateState = "updating" // the new version is on trial
	UpdateDone     UpdateState = "done"     // the agent runs what was offered
	UpdateFailed   UpdateState = "failed"   // tried and rolled back; not tried again until the offer changes
	UpdateRefused  UpdateState = "refused"  // not tried: a rule of the agent's forbids it
)

// Update is how an agent's update of itself stands.
type Update struct {
	State UpdateState `json:"state" enum:"idle,waiting,updating,done,failed,refused"`
	// Offer lets the control plane leave the content out of its answer to an agent
	// that has it.
	Offer  string `json:"offer,omitempty" maxLength:"64" pattern:"^[ -~]*$" doc:"ID of the offer that this is about. Its content is not sent again."`
	From   string `json:"from,omitempty" maxLength:"128" pattern:"^[ -~]*$" doc:"Version before."`
	To     string `json:"to,omitempty" maxLength:"128" pattern:"^[ -~]*$" doc:"Version that is offered."`
	Reason string `json:"reason,omitempty" maxLength:"1024" doc:"Why it waits, failed, or is refused: which rule."`
}

// maxUpdateReason is the reason's maxLength.
const maxUpdateReason = 1024

// ClipReason turns any text, such as a log line, into a valid Reason: one short line of valid
// UTF-8.
func ClipReason(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if utf8.RuneCountInString(text) <= maxUpdateReason {
		return text
	}
	return string([]rune(text)[:maxUpdateReason-1]) + "…"
}

// Offer is a signed release that an agent may update itself to.
type Offer struct {
	ID      string `json:"id" doc:"Changes when the same release is offered again, so that one that failed is tried again."`
	Version string `json:"version"`
	// The rest is absent for an agent that reports that it has this offer.
	Manifest  []byte `json:"manifest,omitempty" doc:"release.json as it was published, in base64."`
	Signature []byte `json:"signature,omitempty" doc:"release.json.minisig as it was published, with the signatures of all signers, in base64."`
	URL       string `json:"url,omitempty" doc:"Where the release's files are: https://HOST/PATH, without the file's name."`
}
