package leader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

func TestCatchUp_ComparesWithListing(t *testing.T) {
	c := &listing{version: "100", apps: map[types.UID]string{"u1": "90", "u2": "100"}}
	for name, tt := range map[string]struct {
		uid      types.UID
		version  string
		outdated bool
	}{
		"as it was":                       {"u1", "90", false},
		"the last that was written":       {"u2", "100", false},
		"written since":                   {"u1", "101", false},
		"written since, with more digits": {"u1", "1000", false},
		"of before it was written":        {"u1", "89", true},
		"of before, with fewer digits":    {"u2", "99", true},
		"gone by then":                    {"u3", "95", true},
		"gone in that moment":             {"u3", "100", true},
		"made since":                      {"u3", "102", false},
	} {
		got, err := c.outdates(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{UID: tt.uid, ResourceVersion: tt.version}})
		require.NoError(t, err, name)
		assert.Equal(t, tt.outdated, got, name)
	}
	_, err := c.outdates(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "v7"}})
	assert.Error(t, err)
}
