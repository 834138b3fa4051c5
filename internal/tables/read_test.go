package tables_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestRead: one row an object, whatever its texts hold, and the namespace first.
func TestRead(t *testing.T) {
	jobs := func(names ...string) tables.Table {
		return tables.Read(func(w io.Writer) {
			var items []runnerapi.Job
			for _, name := range names {
				items = append(items, runnerapi.Job{Name: name, Spec: runnerapi.JobSpec{Image: "a\tb\nc"}})
			}
			tables.Jobs(w, items...)
		})
	}
	none := jobs()
	assert.Equal(t, "NAME", none.Columns[0])
	assert.Empty(t, none.Rows)
	all := tables.Table{}
	all.Add("a", jobs("one", "two"))
	all.Add("b", jobs("three"))
	assert.Equal(t, []string{"NAMESPACE", "NAME"}, all.Columns[:2])
	var first [][]string
	for _, row := range all.Rows {
		assert.Len(t, row, len(all.Columns))
		first = append(first, row[:2])
	}
	assert.Equal(t, [][]string{{"a", "one"}, {"a", "two"}, {"b", "three"}}, first)
	secrets := tables.Read(func(w io.Writer) { tables.Secrets(w, runnerapi.Secret{Namespace: "a", Name: "s"}) })
	all = tables.Table{}
	all.Add("a", secrets)
	assert.Equal(t, []string{"a", "s"}, all.Rows[0][:2])
}
