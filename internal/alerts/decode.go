package alerts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// maxBody and maxAlerts bound one request of Alertmanager.
	maxBody   = 1 << 20
	maxAlerts = 256
	// The longest texts of an event, in bytes, as the control plane accepts them.
	maxName     = 128
	maxSeverity = 64
	maxSummary  = 1024
)

// Status is whether an alert fires.
type Status string

// The states in which Alertmanager sends alerts.
const (
	Firing   Status = "firing"
	Resolved Status = "resolved"
)

// Alert is one alert, with texts that are fit to be shown. Labels that name no object are left out.
type Alert struct {
	Fingerprint string
	Status      Status
	Name        string
	Severity    string
	Namespace   string
	App         string
	Summary     string
	StartedAt   time.Time
	// At is when it began to fire, or was resolved.
	At time.Time
}

// ID is the same however often Alertmanager sends this state of the alert.
func (a *Alert) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "alert/%s/%d/%s", a.Fingerprint, a.StartedAt.UnixNano(), a.Status))
	return hex.EncodeToString(sum[:16])
}

// message is Alertmanager's webhook payload, version 4, as far as it is read.
type message struct {
	Version string  `json:"version"`
	Alerts  []entry `json:"alerts"`
}

type entry struct {
	Status      Status            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
	Fingerprint string            `json:"fingerprint"`
}

var (
	ofMessages  = decode.LimitsFor(maxBody)
	fingerprint = regexp.MustCompile(`^[0-9a-f]{16}$`)
	// dnsName is the form of namespaces' and Apps' names.
	dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Decode reads a request of Alertmanager.
func Decode(body []byte) ([]Alert, error) {
	var m message
	if err := ofMessages.JSON(body, &m); err != nil {
		return nil, problem.Errorf(problem.BadRequest, "send what Alertmanager sends to a webhook", "the body is not an alert message: %s", printable.Clip(err.Error()))
	}
	if m.Version != "4" {
		return nil, problem.Errorf(problem.Invalid, "send version 4", "the message has version %q", printable.Clip(m.Version)).WithField("version")
	}
	if len(m.Alerts) > maxAlerts {
		return nil, problem.Errorf(problem.TooLarge, fmt.Sprintf("set max_alerts of the webhook to %d or less", maxAlerts),
			"the message has %d alerts", len(m.Alerts)).WithField("alerts")
	}
	list := make([]Alert, len(m.Alerts))
	for i := range m.Alerts {
		var err error
		if list[i], err = m.Alerts[i].alert(); err != nil {
			return nil, problem.Errorf(problem.Invalid, "send what Alertmanager sends to a webhook", "alert %d of the message: %v", i+1, err).WithField("alerts")
		}
	}
	return list, nil
}

func (e *entry) alert() (Alert, error) {
	switch {
	case e.Status != Firing && e.Status != Resolved:
		return Alert{}, fmt.Errorf("the status is neither %s nor %s", Firing, Resolved)
	case !fingerprint.MatchString(e.Fingerprint):
		return Alert{}, fmt.Errorf("the fingerprint is not 16 hexadecimal digits")
	case !isSound(e.StartsAt):
		return Alert{}, fmt.Errorf("startsAt is missing or no time of an alert")
	}
	a := Alert{
		Fingerprint: e.Fingerprint, Status: e.Status, StartedAt: e.StartsAt.UTC(), At: e.StartsAt.UTC(),
		Name:     text(cmp.Or(e.Labels["alertname"], "unnamed"), maxName),
		Severity: text(e.Labels["severity"], maxSeverity),
		Summary:  text(cmp.Or(e.Annotations["summary"], e.Annotations["message"], e.Annotations["description"]), maxSummary),
	}
	if e.Status == Resolved && isSound(e.EndsAt) {
		a.At = e.EndsAt.UTC()
	}
	if namespace, app := Subject(e.Labels); dnsName.MatchString(namespace) {
		a.Namespace = namespace
		if dnsName.MatchString(app) {
			a.App = app
		}
	}
	return a, nil
}

// Subject returns the namespace and the App that an alert is about, empty if its labels name none.
// Prometheus calls the namespace of the measured object exported_namespace where namespace is that
// of the exporter.
func Subject(labels map[string]string) (namespace, app string) {
	return cmp.Or(labels["exported_namespace"], labels["namespace"]), cmp.Or(labels["app"], labels["pipeops_io_app"])
}

// isSound reports whether a time can be written as JSON in UTC.
func isSound(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1970 && year < 9999
}

// text returns at most that many bytes of a text, in one line.
func text(s string, most int) string {
	const ellipsis = len("…")
	return printable.Shorten(printable.Text(s), most-ellipsis)
}
