package web

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChart draws five values of which two are missing.
func TestChart(t *testing.T) {
	start := time.Date(2026, 7, 4, 20, 0, 0, 0, time.UTC)
	values := []*float64{new(1.0), new(3.0), nil, new(2.0), nil}
	c := NewChart("CPU", func(v float64) string { return fmt.Sprintf("%.1f cores", v) }, start, time.Minute, values)
	assert.Equal(t, []string{"2.0 cores", "1.0 cores", "2.0 cores", "3.0 cores"}, []string{c.Last, c.Lowest, c.Average, c.Most})
	assert.Equal(t, start.Add(4*time.Minute), c.End)
	assert.Equal(t, "M0.0,81.3L150.0,4.0M450.0,42.7h1", c.Line, "a gap, and a point without neighbours")
	assert.Equal(t, 2, strings.Count(c.Area, "Z"))
	require.Len(t, c.Points, 3)
	assert.Equal(t, start.Add(3*time.Minute), c.Rows[0].Time, "the newest comes first")

	kit, err := template.New("kit").Funcs(functions()).ParseFS(templateFiles, "templates/components.html")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, kit.ExecuteTemplate(&out, "chart", c))
	assert.Contains(t, out.String(), `aria-label="CPU: last 2.0 cores, lowest 1.0 cores, average 2.0 cores, highest 3.0 cores"`)
	assert.Contains(t, out.String(), "<title>2026-07-04 20:01:00 UTC: 3.0 cores</title>")
	assert.Contains(t, out.String(), `d="M0.0,81.3L150.0,4.0M450.0,42.7h1"`)
	assert.NotContains(t, out.String(), "ZgotmplZ")
}

func TestChart_Empty(t *testing.T) {
	text := func(v float64) string { return fmt.Sprint(v) }
	assert.True(t, NewChart("", text, time.Time{}, time.Minute, nil).Empty())
	assert.True(t, NewChart("", text, time.Time{}, time.Minute, []*float64{nil, nil}).Empty())
	zeros := NewChart("", text, time.Time{}, time.Minute, []*float64{new(0.0), new(0.0)})
	assert.Equal(t, "M0.0,120.0L600.0,120.0", zeros.Line)
	long := make([]*float64, 1000)
	for i := range long {
		long[i] = new(float64(i))
	}
	assert.LessOrEqual(t, len(NewChart("", text, time.Time{}, time.Minute, long).Rows), chartRows)
}
