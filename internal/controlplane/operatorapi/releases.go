package operatorapi

import (
	"context"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// The calls about versions that are offered to agents.
var (
	ListReleases = Call[struct{}, List[administration.Offered]]{
		Description{Method: "GET", Path: Prefix + "releases", ID: "list-offers", Role: administration.RoleViewer, Command: "offer list",
			Summary: "List offered versions, and how far the agents are"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (List[administration.Offered], error) {
			return listOf(a.Releases.List(ctx))
		},
	}
	CreateOffer = Call[CreateOfferInput, store.Release]{
		Description{Method: "POST", Path: Prefix + "releases", ID: "create-offer", Role: administration.RoleAdmin, Command: "offer create",
			Summary: "Offer a signed version to agents", Hidden: []string{"manifest", "signature"}}, createOffer,
	}
	DeleteOffer = Call[WithdrawInput, List[store.Release]]{
		Description{Method: "DELETE", Path: Prefix + "releases/{release}", ID: "delete-offer", Role: administration.RoleAdmin, Command: "offer delete",
			Summary: "Delete an offer, or all offers of a version"},
		func(ctx context.Context, a *administration.Admin, in *WithdrawInput) (List[store.Release], error) {
			return listOf(a.Releases.Withdraw(ctx, in.Release))
		},
	}
)

// WithdrawInput names an offer.
type WithdrawInput struct {
	Write
	Release string `path:"release" maxLength:"128" doc:"ID of an offer, or a version."`
}

// CreateOfferInput describes an offer.
type CreateOfferInput struct {
	Write
	Body CreateOfferBody
}

// CreateOfferBody describes an offer.
type CreateOfferBody struct {
	Manifest   []byte            `json:"manifest" maxLength:"700000" doc:"The version's release.json, in base64."`
	Signature  []byte            `json:"signature" maxLength:"100000" doc:"Its release.json.minisig, in base64."`
	Keys       []string          `json:"keys" minItems:"1" maxItems:"32" doc:"Minisign public keys that must have signed the version: what an agent would refuse is not offered."`
	Signatures int               `json:"signatures,omitempty" minimum:"0" maximum:"32" doc:"How many of these keys must have signed; 1 if absent."`
	URL        string            `json:"url" minLength:"1" maxLength:"1024" doc:"URL at which agents find the version's files."`
	Agents     []string          `json:"agents,omitempty" maxItems:"10000" doc:"Names or IDs of the agents; all if absent."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Labels that an agent must have."`
}

func createOffer(ctx context.Context, a *administration.Admin, in *CreateOfferInput) (store.Release, error) {
	b := in.Body
	keys, err := release.ParseKeys(strings.Join(b.Keys, ","))
	if err != nil {
		return store.Release{}, problem.Errorf(problem.Invalid, "send minisign public keys", "%s", err.Error()).WithField("keys")
	}
	if need := max(1, b.Signatures); need > len(keys) {
		return store.Release{}, problem.Errorf(problem.Invalid, "name each signer's key", "%d signatures cannot be of %d keys", need, len(keys)).WithField("signatures")
	}
	return a.Releases.Offer(ctx, administration.ReleaseOptions{
		Manifest: b.Manifest, Signature: b.Signature, Trust: release.Trust{Keys: keys, Signatures: max(1, b.Signatures)},
		URL: b.URL, Agents: b.Agents, Labels: b.Labels,
	})
}
