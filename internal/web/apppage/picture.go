package apppage

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The sizes in a Picture, in pixels and characters.
const (
	boxWidth, boxHeight = 220, 46
	gapAcross, gapDown  = 60, 12
	maxBoxText          = 28
	// margin leaves room for the lines of boxes.
	margin = 1
	// maxBoxes is how many boxes stand below each other. The last one counts the others.
	maxBoxes = 6
)

// Picture is how requests reach an App: hosts, the Service, pods. It is drawn here, so that it
// needs no script.
type Picture struct {
	Text          string // the same in words
	Width, Height int
	Boxes         []Box
	Arrows        []string // paths
}

// Box is one part of a Picture.
type Box struct {
	X, Y, Width, Height int
	Title, Note, Tone   string
}

// Picture returns how requests reach the App; nil if none do.
func (d Data) Picture() *Picture {
	if len(d.Spec.Ports) == 0 {
		return nil
	}
	ports := make([]string, 0, len(d.Spec.Ports))
	for _, port := range d.Spec.Ports {
		ports = append(ports, fmt.Sprint(port.ServicePort()))
	}
	service := []Box{{Title: "Service " + d.Name, Note: "port " + strings.Join(ports, ", ")}}
	p := &Picture{}
	p.draw(few(hosts(d.App), "hosts"), service, few(d.podBoxes(), "pods"))
	return p
}

// hosts returns the hosts that are served, then the others.
func hosts(a runnerapi.App) (all []Box) {
	served := map[string]bool{}
	for _, at := range a.Status.PublicURLs {
		if u, err := url.Parse(at); err == nil {
			served[u.Host] = true
			served[u.Hostname()] = served[u.Hostname()] || u.Scheme == "tls"
			all = append(all, Box{Title: u.Host + strings.TrimSuffix(u.Path, "/"), Note: "served", Tone: "good"})
		}
	}
	if a.Spec.Ingress != nil {
		for _, h := range a.Spec.Ingress.Hosts {
			if !served[h.Host] {
				all = append(all, Box{Title: h.Host + strings.TrimSuffix(h.Path, "/"), Note: "not served", Tone: "warn"})
			}
		}
	}
	return all
}

// podBoxes returns the pods, or their number where the site does not know them.
func (d Data) podBoxes() (all []Box) {
	if d.Inside == nil {
		return []Box{{Title: "Pods", Note: d.Ready() + " ready", Tone: web.Tone(d.State())}}
	}
	for _, pod := range d.Inside.Pods {
		all = append(all, Box{Title: pod.Name, Note: pod.State, Tone: web.Tone(pod.State)})
	}
	return all
}

// few returns the boxes for which there is room. The last one counts the others.
func few(boxes []Box, what string) []Box {
	if more := len(boxes) - maxBoxes + 1; more > 1 {
		boxes = append(boxes[:maxBoxes-1:maxBoxes-1], Box{Title: fmt.Sprintf("%d more %s", more, what)})
	}
	return boxes
}

// draw places columns beside each other, each in the middle, and joins neighbours by arrows.
func (p *Picture) draw(columns ...[]Box) {
	for _, column := range columns {
		p.Height = max(p.Height, len(column)*(boxHeight+gapDown)-gapDown)
	}
	var before []Box
	var words []string
	p.Width = margin
	for _, column := range columns {
		if len(column) == 0 {
			continue
		}
		y, names := (p.Height-len(column)*(boxHeight+gapDown)+gapDown)/2, []string{}
		for i := range column {
			b := &column[i]
			names = append(names, strings.TrimSuffix(b.Title+", "+b.Note, ", "))
			b.Title, b.Note = printable.Shorten(b.Title, maxBoxText), printable.Shorten(b.Note, maxBoxText)
			b.X, b.Y, b.Width, b.Height = p.Width, margin+y+i*(boxHeight+gapDown), boxWidth, boxHeight
			for _, from := range before {
				p.Arrows = append(p.Arrows, arrow(from.X+boxWidth, from.Y+boxHeight/2, b.X, b.Y+boxHeight/2))
			}
		}
		p.Boxes, words = append(p.Boxes, column...), append(words, strings.Join(names, "; "))
		before, p.Width = column, p.Width+boxWidth+gapAcross
	}
	p.Width, p.Height = p.Width-gapAcross+margin, p.Height+2*margin
	p.Text = strings.Join(words, " → ")
}

// arrow returns the path of a curve with a head.
func arrow(x, y, toX, toY int) string {
	middle := (x + toX) / 2
	return fmt.Sprintf("M%d,%dC%d,%d %d,%d %d,%dM%d,%dL%d,%dL%d,%d", x, y, middle, y, middle, toY, toX-2, toY, toX-8, toY-5, toX-2, toY, toX-8, toY+5)
}
