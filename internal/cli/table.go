package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Wide is a header of a column that only -o wide shows.
type Wide string

// grid keeps what a table prints, so that rows can be left out or moved.
type grid struct {
	lines []gridLine
	wide  bool
	left  map[int]bool // columns that are left out
}

// gridLine is a row, or a text where cells is nil.
type gridLine struct {
	cells []string
	text  string
}

// Write keeps lines that are not rows.
func (g *grid) Write(p []byte) (int, error) {
	g.lines = append(g.lines, gridLine{text: string(p)})
	return len(p), nil
}

func (g *grid) row(cells []any) {
	if len(g.lines) == 0 && !g.wide {
		for i, c := range cells {
			if _, isWide := c.(Wide); isWide {
				g.left[i] = true
			}
		}
	}
	text := make([]string, 0, len(cells))
	for i, c := range cells {
		if !g.left[i] {
			text = append(text, cellText(c))
		}
	}
	g.lines = append(g.lines, gridLine{cells: text})
}

func cellText(c any) string {
	if text := Printable(fmt.Sprint(c)); text != "" {
		return text
	}
	return "-"
}

// Row writes one line of a table. Its writer keeps the errors until Flush.
func Row(w io.Writer, cells ...any) {
	if g, ok := w.(*grid); ok {
		g.row(cells)
		return
	}
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = cellText(c)
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}

// writeTable prints a table. The order, if any, is that of its rows below the header.
func (o *Output) writeTable(w io.Writer, order *arranged, table func(io.Writer)) error {
	g := &grid{wide: o.Format == "wide", left: map[int]bool{}}
	table(g)
	if order != nil {
		if err := g.arrange(order, o.Namespaced); err != nil {
			return err
		}
	}
	if o.Format == markdown {
		return g.writeMarkdown(w)
	}
	if coloured(w) {
		g.colour()
	}
	if o.list.noHeaders && len(g.lines) > 0 {
		g.lines = g.lines[1:]
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, l := range g.lines {
		if l.cells == nil {
			fmt.Fprint(t, l.text)
			continue
		}
		fmt.Fprintln(t, strings.Join(l.cells, "\t"))
	}
	return t.Flush()
}

// arrange puts the rows in order, each behind its namespace if the table does not have that.
func (g *grid) arrange(order *arranged, namespaced bool) error {
	if len(g.lines) < order.all+1 {
		return fmt.Errorf("a table of %d rows has %d items", len(g.lines)-1, order.all)
	}
	header, rows, rest := g.lines[0], g.lines[1:order.all+1], g.lines[order.all+1:]
	namespaced = namespaced && len(header.cells) > 0 && header.cells[0] != "NAMESPACE"
	if namespaced {
		header.cells = append([]string{"NAMESPACE"}, header.cells...)
	}
	g.lines = []gridLine{header}
	for _, i := range order.order {
		row := rows[i]
		if namespaced {
			row.cells = append([]string{cellText(order.items[i]["namespace"])}, row.cells...)
		}
		g.lines = append(g.lines, row)
	}
	g.lines = append(g.lines, rest...)
	return nil
}
