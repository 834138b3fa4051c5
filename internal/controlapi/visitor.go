package controlapi

import (
	"context"
	"net/url"
)

const pathVisitor = "/v1/agent/visitor"

// VisitorSignIn is where visitors of Apps sign in.
type VisitorSignIn struct {
	Page     string `json:"page" doc:"Address of the page to which a visitor is sent."`
	Provider string `json:"provider" doc:"The identity provider's issuer. With another one, subjects are those of others."`
}

// The parameters of the page of a VisitorSignIn.
const (
	// VisitorHost is the host that the visitor wants, without a port.
	VisitorHost = "host"
	// VisitorState comes back to the host unchanged: 1 to 2048 characters of A-Z a-z 0-9 - . _ ~.
	VisitorState = "state"
	// VisitorChallenge is the verifier's by the method S256 (RFC 7636).
	VisitorChallenge = "challenge"
)

// VisitorPage returns the address at which a visitor signs in: of the page, for a host of the
// agent.
func VisitorPage(page, host, state, challenge string) string {
	return page + "?" + url.Values{VisitorHost: {host}, VisitorState: {state}, VisitorChallenge: {challenge}}.Encode()
}

// VisitorRequest asks who a visitor is that has returned to a host with a code. A code is good
// once, for a minute, and for the agent, the host and the challenge that it was issued for.
type VisitorRequest struct {
	Host     string `json:"host" minLength:"1" maxLength:"253" pattern:"^[a-z0-9.-]*$" doc:"Host to which the visitor has returned, without a port."`
	Code     string `json:"code" minLength:"1" maxLength:"128" pattern:"^[!-~]*$"`
	Verifier string `json:"verifier" minLength:"43" maxLength:"128" pattern:"^[A-Za-z0-9._~-]*$" doc:"Whose challenge the visitor's browser brought (RFC 7636)."`
}

// Visitor is whom the operator's identity provider has identified.
type Visitor struct {
	Subject       string   `json:"subject" doc:"Identifies the person at the provider."`
	Email         string   `json:"email,omitempty"`
	EmailVerified bool     `json:"emailVerified,omitempty" doc:"The provider has verified the email address. Otherwise it proves nothing."`
	Name          string   `json:"name,omitempty" doc:"For people."`
	Groups        []string `json:"groups,omitempty"`
}

// Visitor returns the visitor who has returned with a code. The code is used up, also by an error.
func (c *Client) Visitor(ctx context.Context, req VisitorRequest) (Visitor, error) {
	return answered[Visitor](func(visitor any) error { return c.post(ctx, c.named, pathVisitor, nil, req, visitor) })
}

type (
	visitorInput  struct{ Body VisitorRequest }
	visitorOutput struct{ Body Visitor }
)

func (h *handler) visitor(ctx context.Context, in *visitorInput) (*visitorOutput, error) {
	visitor, err := h.backend.Visitor(ctx, peerOf(ctx).agentID, in.Body)
	return &visitorOutput{Body: visitor}, h.problem(ctx, err)
}
