package figures

import (
	"path"
	"strings"
)

// Definition is a figure that a part measures.
type Definition struct {
	ID, Title, Unit string
	Bound           *Bound // nil without one
}

// Part is what one run measures.
type Part struct {
	Name string
	// Command is what the run is started with, and Page the page in docs with its table.
	Command, Page string
	// Definitions are in the order of the table.
	Definitions []Definition
}

// Parts returns all parts.
func Parts() []*Part { return []*Part{Apps, Streams, Monitoring, Tunnel, Agents, Gateway, Chaos} }

// JSON returns where the newest run is kept, below docs.
func (p *Part) JSON() string { return path.Join("bench", p.file()) }

// link returns the JSON's path from the page.
func (p *Part) link() string {
	return strings.Repeat("../", strings.Count(p.Page, "/")) + p.JSON()
}

func (p *Part) file() string { return p.Name + ".json" }

// definition returns nil if there is none of that ID.
func (p *Part) definition(id string) *Definition {
	for i := range p.Definitions {
		if p.Definitions[i].ID == id {
			return &p.Definitions[i]
		}
	}
	return nil
}
