package components

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A key that a chart does not have would change nothing.
func TestValues_KnownToCharts(t *testing.T) {
	source := Source{Directory: "../../../shared/charts"}
	for _, c := range table {
		for _, chart := range c.Charts {
			own, err := values(chart.Name, true, namespaceSystem, nil)
			require.NoError(t, err)
			loaded, err := source.load(t.Context(), chart)
			require.NoError(t, err)
			known := loaded.Values
			for _, d := range loaded.Dependencies() {
				all := map[string]any{}
				merge(all, d.Values)
				if parent, ok := known[d.Name()].(map[string]any); ok {
					merge(all, parent)
				}
				known[d.Name()] = all
			}
			assertKnown(t, chart.Name, own, known)
		}
	}
}

// passedOn are values that charts pass on as they are.
var passedOn = []string{"loki.loki", "prometheus.alertmanager.config"}

// unlisted are values that a chart reads and does not list.
var unlisted = []string{"grafana.persistence.annotations"}

// assertKnown looks for keys that a chart lacks. Below an empty or absent map anything goes, and so
// do the configurations of Loki and Alertmanager, which the charts pass on.
func assertKnown(t *testing.T, at string, own, known map[string]any) {
	t.Helper()
	for key, value := range own {
		had, there := known[key]
		assert.True(t, there || slices.Contains(unlisted, at+"."+key), "%s.%s", at, key)
		inner, isMap := value.(map[string]any)
		if below, ok := had.(map[string]any); isMap && ok && len(below) > 0 && !slices.Contains(passedOn, at+"."+key) {
			assertKnown(t, at+"."+key, inner, below)
		}
	}
}
