package console

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// certificatesShown is how many of the newest certificates a page shows.
const certificatesShown = 100

// caData is what the page Certificates shows.
type caData struct {
	administration.CAStatus
	Issued []administration.IssuedCertificate
	Find   string
}

func (p *controlPlanePages) ca(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "ca", page(r, "Certificates", operatorapi.ConsolePath+"/ca", ""), func(ctx context.Context) (data caData, err error) {
		if data.CAStatus, err = operatorapi.GetCA.Do(ctx, p.opts.API, struct{}{}); err != nil {
			return data, err
		}
		list, err := operatorapi.ListCertificates.Do(ctx, p.opts.API, operatorapi.CertificatesInput{Limit: certificatesShown, Name: r.URL.Query().Get("find")})
		data.Issued, data.Find = list.Items, r.URL.Query().Get("find")
		return data, err
	})
}
