package tables

import (
	"bytes"
	"io"
	"strings"
)

// Table is a table for those who only show it, as the Kubernetes API has one (meta/v1 Table).
type Table struct {
	Columns []string   `json:"columns" nullable:"false"`
	Rows    [][]string `json:"rows" nullable:"false" doc:"A cell for each column; - for none."`
}

// Read returns what a function of this package writes.
func Read(write func(io.Writer)) Table {
	var text bytes.Buffer
	write(&text)
	t := Table{Columns: []string{}, Rows: [][]string{}}
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(t.Columns) == 0 {
			t.Columns = cells
			continue
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// Add adds the rows of objects of a namespace, which becomes the first column.
func (t *Table) Add(namespace string, more Table) {
	if len(more.Columns) > 0 && more.Columns[0] != "NAMESPACE" {
		more.Columns = append([]string{"NAMESPACE"}, more.Columns...)
		for i, row := range more.Rows {
			more.Rows[i] = append([]string{namespace}, row...)
		}
	}
	t.Columns, t.Rows = more.Columns, append(t.Rows, more.Rows...)
}
