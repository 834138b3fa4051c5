package dashboard

import (
	"context"
	"net/http"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

type doctorData struct {
	Ran    bool
	Report doctor.Report
	Failed int
}

// doctorPages are the checks, and the bundle for support.
type doctorPages struct{ *site }

// doctor runs the checks when its button is pressed: they take seconds, and call the control plane.
func (d *doctorPages) doctor(w http.ResponseWriter, r *http.Request) error {
	data := doctorData{}
	if r.Method == http.MethodPost {
		report, err := d.opts.Doctor(r.Context())
		if err != nil {
			return problem.Errorf(problem.Unavailable, "run `pipeops-agent doctor` where the agent runs", "the checks could not run: %v", err)
		}
		data = doctorData{true, ordered(report), report.Failures()}
	}
	d.pages.Render(w, r, http.StatusOK, "doctor", web.Page{Title: "Doctor", Current: "/doctor", Data: data})
	return nil
}

// ordered returns a report whose failures and warnings come first.
func ordered(r doctor.Report) doctor.Report {
	var all []doctor.Finding
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning, doctor.OK, doctor.Skipped} {
		for _, f := range r.Findings {
			if f.Status == status {
				all = append(all, f)
			}
		}
	}
	r.Findings = all
	return r
}

// bundle sends what support needs, without secrets.
func (d *doctorPages) bundle(w http.ResponseWriter, r *http.Request) error {
	dir, err := os.MkdirTemp("", "pipeops-support-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	report, err := d.opts.Doctor(r.Context())
	if err != nil { // the bundle says what is known
		report = doctor.Report{Version: d.opts.Version, Time: d.opts.Now().UTC(), Findings: []doctor.Finding{{Check: "doctor", Status: doctor.Failed, Detail: err.Error()}}}
	}
	file := filepath.Join(dir, "support.tar.gz")
	if err := d.opts.Bundle(context.WithoutCancel(r.Context()), file, report); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="pipeops-support.tar.gz"`)
	http.ServeFile(w, r, file)
	return nil
}
