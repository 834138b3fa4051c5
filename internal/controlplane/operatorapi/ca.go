package operatorapi

import (
	"context"
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// CodeNotReady is the code for a step of a rotation that would cut off agents or Runners.
const CodeNotReady problem.Code = "not_ready"

// The calls about the CA.
var (
	GetCA = Call[struct{}, administration.CAStatus]{
		Description{Method: "GET", Path: Prefix + "ca", ID: "get-ca", Role: administration.RoleViewer, Command: "ca get",
			Summary: "Show the CA, its rotation and what the next step waits for"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (administration.CAStatus, error) {
			return a.CA.Status(ctx)
		},
	}
	ListCertificates = Call[CertificatesInput, List[administration.IssuedCertificate]]{
		Description{Method: "GET", Path: Prefix + "ca/certificates", ID: "list-certificates", Role: administration.RoleViewer, Command: "certificate list",
			Summary: "List the certificates that the CA issued"},
		func(ctx context.Context, a *administration.Admin, in *CertificatesInput) (List[administration.IssuedCertificate], error) {
			return listOf(a.CA.Issued(ctx, administration.IssuedOptions{Kind: in.Kind, Name: in.Name, Serial: in.Serial, Limit: in.Limit}))
		},
	}
	RotateCA = Call[RotateCAInput, CARotation]{
		Description{Method: "POST", Path: Prefix + "ca/rotation/{step}", ID: "rotate-ca", Role: administration.RoleAdmin, Command: "ca rotate",
			Summary: "Take a step of the CA's rotation"}, rotateCA,
	}
)

// CertificatesInput selects certificates.
type CertificatesInput struct {
	Kind   string `query:"kind" maxLength:"32" doc:"Kind of certificates; all but the control plane's own client certificates if absent."`
	Name   string `query:"name" maxLength:"253" doc:"An agent's name or ID, or the name of another holder."`
	Serial string `query:"serial" maxLength:"128" doc:"Serial number in hexadecimal."`
	Limit  int    `query:"limit" minimum:"1" maximum:"10000" default:"100"`
}

// RotateCAInput names a step.
type RotateCAInput struct {
	Write
	Step ca.Step `path:"step" enum:"start,sign,finish,abort"`
	Body RotateCABody
}

// RotateCABody says how a step is taken.
type RotateCABody struct {
	Force bool `json:"force,omitempty" doc:"Take the step although some agents or Runners are not ready."`
}

// CARotation is the CA after a step.
type CARotation struct {
	administration.CAStatus
	Changed bool `json:"changed" doc:"False for a step that was taken before, and for a dry run."`
}

func rotateCA(ctx context.Context, a *administration.Admin, in *RotateCAInput) (CARotation, error) {
	status, changed, err := a.CA.Rotate(ctx, in.Step, administration.RotateOptions{Force: in.Body.Force, DryRun: a.IsDryRun()})
	if _, ok := errors.AsType[*administration.NotReadyError](err); ok {
		err = problem.New(409, CodeNotReady, "", "%s", err.Error())
	}
	return CARotation{status, changed}, err
}
